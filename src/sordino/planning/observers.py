"""Who sees what of a round, under a plan that protects clients."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from sordino.mechanisms.gaussian import IdealShares
from sordino.mechanisms.secure_sum import SecureSum
from sordino.planning.arguments import Arguments
from sordino.planning.cohort import FullCohort
from sordino.planning.warnings import memory_by_number
from sordino.privacy import wording
from sordino.privacy.events import Claimed, Gaussian, NonPrivate, sampled
from sordino.privacy.ledger_record import Release
from sordino.privacy.sampling import Full, Sampling
from sordino.types import Event, Mechanism, Method, Observer, Trust


class View(NamedTuple):
    """What one round shows to one observer."""

    observer: Observer
    event: Event
    sampling: Sampling  # of the clients, secret to this observer
    assumptions: tuple[str, ...] = ()


def sampling_of(plan: Arguments, clients: int) -> Sampling:
    """How the cohort is accounted against an observer who does not see it."""
    return Full() if memory_by_number(plan) else plan.cohort.sampling(clients)


def client_views(plan: Arguments, method: Method, mechanism: Mechanism, event: Event, clients: int) -> list[View]:
    """The views of the server and of a model user; `event` is what the noise makes of one round."""
    if plan.trusted is Trust.NONE:
        return [View(Observer.SERVER, event, Full()), View(Observer.MODEL_USER, event, Full())]
    if plan.trusted is Trust.CENTRAL:
        bare = NonPrivate("the server sees every update without noise")
        amplified = sampling_of(plan, clients) if plan.noise.amplified else Full()
        return [
            View(Observer.SERVER, bare, Full()),
            View(Observer.MODEL_USER, event, amplified, (wording.ASSUME_SERVER_TRUSTED,)),
        ]
    if plan.trusted is Trust.SECURE_AGGREGATION:  # models follow from the sums that the server sees
        rests = _assumed_of_sums(mechanism)
        return [View(Observer.SERVER, event, Full(), rests), View(Observer.MODEL_USER, event, Full(), rests)]
    server = View(Observer.SERVER, event, Full(), method.assumptions(Observer.SERVER))
    return [server, _through_models(plan, method, event, clients)]


def _assumed_of_sums(mechanism: Mechanism) -> tuple[str, ...]:
    """What a guarantee against whoever sees the sums of a round's messages rests on."""
    assert isinstance(mechanism, SecureSum | IdealShares)  # the plan refuses other noise
    shares = mechanism.shares
    answers = wording.assume_shares(shares.fewest, shares.colluding)
    if isinstance(mechanism, SecureSum):
        return wording.assume_secure_sums(mechanism.lattice.bits), answers
    return wording.ASSUME_REAL_SUMS, answers


def _through_models(plan: Arguments, method: Method, event: Event, clients: int) -> View:
    """A model user sees sums of noisy messages, which hold the noise of all clients where their number is fixed.

    Not under add-remove, which local trust refuses: an absent client's noise would be absent too, and visibly so. Not
    where models depend on more than the sum, as on the norm of every message. Not where clients compensate their noise:
    the sums of later rounds take it off again.
    """
    noise = event.event if isinstance(event, Claimed) else event  # the claim is about the server
    privacy = method.privacy
    only_sums = isinstance(plan.cohort, FullCohort) and privacy.uses_sum_only and not privacy.remembers_noise
    if only_sums and plan.mechanism == "gaussian" and isinstance(noise, Gaussian):
        together = dataclasses.replace(noise, noise_multiplier=noise.noise_multiplier * math.sqrt(clients))
        return View(Observer.MODEL_USER, together, Full(), (wording.ASSUME_OTHERS_HONEST,))
    return View(Observer.MODEL_USER, event, Full(), method.assumptions(Observer.MODEL_USER))


def releases_of(views: list[View]) -> tuple[Release, ...]:
    """What a round releases, for the ledger."""
    return tuple(("update", (view.observer,), sampled(view.event, view.sampling)) for view in views)
