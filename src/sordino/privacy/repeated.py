"""A privacy loss composed with itself, as often as asked, and the least epsilon of the result.

The arithmetic is that of dp-accounting, on arrays: Chernoff bounds on the tails, whose mass counts as infinite, and
powers of a Fourier transform. What does not depend on the number of releases is computed once, since a run asks for the
cost of 10, 20, 30, ... rounds of one release.
"""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np
from dp_accounting.pld.pld_pmf import DensePLDPmf, PLDPmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from numpy.typing import NDArray
from scipy import fft

_CUT = 1e-15  # mass in both tails that a composition leaves out, and counts as infinite
_ORDERS = 20  # of Chernoff bounds on each tail
_NOTHING = 1e-30  # of a frequency after a composition: far below what rounding leaves


class RepeatedLoss:
    """The loss of one release, and of any number of such releases."""

    def __init__(self, loss: PrivacyLossDistribution) -> None:
        self._one = loss
        pair = (loss._pmf_remove,) if loss._symmetric else (loss._pmf_remove, loss._pmf_add)
        dense = tuple(_Powers(pmf) for pmf in pair if isinstance(pmf, DensePLDPmf))
        self._powers = dense if len(dense) == len(pair) else None  # the library is fast where lists are short

    def times(self, count: int) -> PrivacyLossDistribution:
        """The loss of `count` releases."""
        surely_infinite = self._one.get_delta_for_epsilon(math.inf) >= 1  # the library cannot compose it
        if count == 1 or surely_infinite:
            return self._one
        if self._powers is None:
            return self._one.self_compose(count)
        return PrivacyLossDistribution(*(power.composed(count) for power in self._powers))


class _Powers:
    """A list of probabilities, to be convolved with itself."""

    def __init__(self, pmf: DensePLDPmf) -> None:
        self._step, self._lower, self._infinite = pmf._discretization, pmf._lower_loss, pmf._infinity_mass
        self._mass: NDArray[np.float64] = np.asarray(pmf._probs)
        self._moments = _log_moments(self._mass)
        self._spectra: dict[int, tuple[NDArray[np.complex128], NDArray[np.float64]]] = {}  # by their lengths

    def composed(self, count: int) -> DensePLDPmf:
        """The probabilities of the sum of `count` losses."""
        first, last = self._range(count)
        length = last - first + 1
        padded, spectrum, size = self._transform(max(length, len(self._mass)))
        heard = np.flatnonzero(size > _NOTHING ** (1 / count))  # few frequencies are left of many releases
        powers = np.zeros_like(spectrum)
        powers[heard] = _power(spectrum[heard], count)
        around = fft.irfft(powers, padded)  # wrapped around, modulo its length
        mass = np.roll(around, -first)[:length]
        infinite = _CUT - math.expm1(count * math.log1p(-self._infinite))
        return DensePLDPmf(self._step, self._lower * count + first, mass, infinite, True)

    def _range(self, count: int) -> tuple[int, int]:
        """Between which places all but _CUT of the mass lies: P(X >= x) <= E e^(a X) / e^(a x), for many a."""
        first, last = 0, (len(self._mass) - 1) * count
        for order, moment in self._moments:
            edge = (count * moment + math.log(2 / _CUT)) / order
            if not math.isfinite(edge):
                continue
            first, last = (max(first, math.floor(edge)), last) if order < 0 else (first, min(last, math.ceil(edge)))
        return first, last

    def _transform(self, least: int) -> tuple[int, NDArray[np.complex128], NDArray[np.float64]]:
        """The Fourier transform, at least so long, and its size.

        A power of two, so that compositions of many lengths share it.
        """
        padded = 1 << (least - 1).bit_length()
        if padded not in self._spectra:
            spectrum = fft.rfft(self._mass, padded)
            self._spectra[padded] = spectrum, np.abs(spectrum)
        return padded, *self._spectra[padded]


def _log_moments(mass: NDArray[np.float64]) -> list[tuple[float, float]]:
    """(a, log E e^(a X)) for the orders a of the Chernoff bounds, X being a place in the list."""
    size = len(mass)
    found = []
    for sign in (-1, 1):
        # The weights lie in (0, 1]: those of positive orders are taken relative to the last place.
        places = np.arange(size) if sign < 0 else np.arange(size - 1, -1, -1)
        weight = np.exp(-places / size)
        weighted = mass
        for k in range(1, _ORDERS + 1):
            weighted = weighted * weight
            order, total = sign * k / size, float(weighted.sum())
            moment = math.log(total) if total > 0 else -math.inf
            found.append((order, moment + order * (size - 1) if sign > 0 else moment))
    return found


def _power(spectrum: NDArray[np.complex128], count: int) -> NDArray[np.complex128]:
    """By squaring and multiplying."""
    square, result = spectrum, None
    while True:
        if count % 2:
            result = square if result is None else result * square
        count //= 2
        if count == 0:
            assert result is not None
            return result
        square = square * square


def least_epsilon(loss: PrivacyLossDistribution, delta: float) -> float:
    """The least epsilon >= 0 at which the hockey-stick divergence of a loss is at most delta."""
    pair = (loss._pmf_remove,) if loss._symmetric else (loss._pmf_remove, loss._pmf_add)
    return max(_epsilon_of_list(pmf, delta) for pmf in pair)


def _epsilon_of_list(pmf: PLDPmf, delta: float) -> float:
    """The library's loop over losses, from the largest down, as sums of all of them at once.

    delta(epsilon) = above - e^epsilon weighed between two losses of the list, with `above` the mass of all larger
    losses l and `weighed` their sum of mass e^-l, so that epsilon = log((above - delta) / weighed) if it lies there.
    """
    if not isinstance(pmf, DensePLDPmf):
        return float(pmf.get_epsilon_for_delta(delta))
    if pmf._infinity_mass > delta:
        return math.inf
    losses = np.arange(pmf._lower_loss + pmf.size - 1, pmf._lower_loss - 1, -1) * pmf._discretization
    losses = losses[: max(1, int(np.searchsorted(-losses, 0.0)) + 1)]  # no epsilon lies below zero
    mass = pmf._probs[::-1][: len(losses)]
    above = pmf._infinity_mass + np.cumsum(mass)
    weighed = np.cumsum(mass * np.exp(-losses))

    def reached(place: int) -> bool:
        """Whether epsilon lies above the next loss."""
        if above[place] <= delta or weighed[place] <= 0:
            return False
        return math.log((above[place] - delta) / weighed[place]) >= losses[place + 1]

    first = int(np.argmax(above >= delta))
    if above[first] >= delta and weighed[first] == 0:  # e^-l is zero in floats
        return max(0.0, float(losses[first]))
    place = bisect_left(range(len(losses) - 1), True, key=reached)
    rest = float(above[place]) - delta
    return max(0.0, math.log(rest / float(weighed[place]))) if rest > 0 else 0.0
