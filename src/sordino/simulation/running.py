"""Running a plan: segments of compiled rounds, and between them evaluation, metrics, ledger and checkpoint.

The ledger is written before a segment runs, since a segment releases all of its rounds. A run that was killed and is
resumed repeats its last segment with the same keys, which releases the same messages again and nothing new; the ledger
already holds them. This is why a run can only be resumed with the configuration, the seed, the records, the loss and
the generator that it was started with.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import platform
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

import sordino
from sordino.errors import LARGEST_SEED, NO_SUCH_SEED, InvalidInput, SordinoError, require
from sordino.models.model import Batch
from sordino.planning import Plan, ResolvedPlan
from sordino.planning.resolved import Release
from sordino.privacy.accountants import account_of, epsilon_of
from sordino.privacy.events import Composed, of_run
from sordino.privacy.guarantee import Certificate
from sordino.privacy.ledger import Ledger, LedgerRecord, of_one_round, read_ledger
from sordino.rounds.engine import ProgramSpec, RoundInfo, RoundState, run_rounds
from sordino.simulation.checkpoint import load_checkpoint, save_checkpoint, write_atomically
from sordino.tasks import Task
from sordino.types import Key, Observer

__all__ = ["Progress", "Run", "environment", "load_model", "simulate"]

Progress = Callable[[dict[str, Any]], None]
# Of records and seed. Not in the ledger, which others may see: who guesses them could check the guess, and noise can be
# taken off by who knows the seed.
RECORDS = "records.sha256"
CACHE = 2.0**18  # bytes of a CPU's cache for a chunk of clients; larger chunks were up to three times slower


@dataclass(frozen=True)
class Run:
    """A finished run."""

    params: Any
    history: list[dict[str, Any]]
    certificate: Certificate
    seconds: float
    transcript: Any = None
    iterates: Any = None

    @property
    def accuracy(self) -> float:
        """Test accuracy after the last round, of a classifier."""
        return float(self.history[-1]["accuracy"])

    @property
    def diverged(self) -> bool:
        """Whether the model was lost: its test loss is not a number."""
        return not math.isfinite(self.history[-1]["test_loss"])

    def mean_accuracy(self, last: int = 5) -> float:
        """Mean test accuracy over the last evaluations, as papers report it."""
        return float(np.mean([row["accuracy"] for row in self.history[-last:]]))


def simulate(
    plan: Plan,
    task: Task,
    *,
    seed: int = 0,
    evaluate_every: int | None = None,
    chunk: int | None = None,
    transcript: bool = False,
    iterates: bool = False,
    folder: Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Run:
    """Run a plan on a task.

    Args:
      plan: from `so.plan`.
      task: from `so.task`.
      seed: of everything that is random in the run.
      evaluate_every: rounds between evaluations (about twenty, if left out); the last five rounds are always seen.
      chunk: clients that are trained at a time; chosen from the memory, if left out.
      transcript: keep every message of every client, for audits.
      iterates: keep the model, as a flat vector, of every evaluation.
      folder: where metrics, ledger, checkpoint, certificate and model go.
      resume: go on from the checkpoint in `folder`, or from the start if it was killed before there was one.
      progress: called with a row of metrics after every evaluation.
    """
    started = time.perf_counter()
    require_seed(seed)
    require(chunk is None or chunk >= 1, "chunk", chunk, "must be at least 1")
    require(evaluate_every is None or evaluate_every >= 1, "evaluate_every", evaluate_every, "must be at least 1")
    resolved = plan.resolve(task.population)
    setting = setting_of(plan, resolved, task, chunk=chunk or choose_chunk(task, plan), transcript=transcript)
    rules = resolved.rules.with_noise_in_client() if transcript else resolved.rules
    algorithm = rules.method
    key = jax.random.key(seed)
    carry = initial_carry(algorithm, task, key)
    files = None if folder is None else RunFiles.open(folder, plan, task, resolved, seed, resume, setting)
    with files or nullcontext():
        first, history = 0, []
        if files is not None and resume:
            if files.checkpoint.exists():
                first, carry = load_checkpoint(files.checkpoint, carry)
            # What is promised follows from the plan, not from a file.
            history = files.metrics_until(first, lambda rounds: spent(rounds, plan, resolved))
            remedy = "holds no row, and no round is left to measure: the model and the ledger are whole"
            require(bool(history) or first < plan.rounds, "metrics", str(files.metrics), remedy)
        transcripts, models = [], []
        for start, stop in segments(first, plan.rounds, evaluate_every or usual_interval(plan.rounds)):
            if files is not None:
                files.record_releases(start, stop)
            carry, info = run_rounds(
                rules,
                task.records,
                carry,
                key,
                jnp.int32(start),
                spec=setting,
                rounds=stop - start,
            )
            require_bounded(algorithm, info, start, stop)
            w = algorithm.params(carry.server)
            row = metrics_row(stop, task.evaluate(w), info, plan, resolved)
            history.append(row)
            if iterates:
                models.append(np.asarray(w))
            if transcript:
                transcripts.append(jax.tree.map(np.asarray, info.transcript))
            if files is not None:
                files.append_metrics(row)
                save_checkpoint(files.checkpoint, stop, carry)
            if progress is not None:
                progress(row | {"rounds": plan.rounds, "seconds": time.perf_counter() - started})
        params = task.params(algorithm.params(carry.server))
        if files is not None:
            files.finish(params)
    seconds = time.perf_counter() - started
    return Run(
        params, history, resolved.certificate, seconds, transcripts or None, np.stack(models) if models else None
    )


def require_bounded(algorithm: Any, info: RoundInfo, start: int, stop: int) -> None:
    """Stop a run whose certificate is false: its method sends more than the bound that the noise was made for."""
    count = int(np.sum(info.exceeds_limit))
    if count:
        rounds = f"round {start}" if stop == start + 1 else f"rounds {start} to {stop - 1}"
        raise SordinoError(
            f"{type(algorithm).__name__}.client: {count} messages of {rounds} are longer than the method's bound, "
            "for which the noise was made, so that no guarantee holds: bound the message last, before it is returned"
        )


def require_seed(seed: int) -> None:
    """Refuse a seed that would repeat the noise of another: the generator takes 32 bits of it."""
    require(0 <= seed <= LARGEST_SEED, "seed", seed, NO_SUCH_SEED)


def segments(first: int, rounds: int, every: int) -> list[tuple[int, int]]:
    """[start, stop) of the rounds between evaluations: every `every` rounds, and each of the last five."""
    stops = sorted({*range(every, rounds + 1, every), *range(max(1, rounds - 4), rounds + 1)})
    left = [stop for stop in stops if stop > first]
    return list(zip([first, *left], left, strict=False))


def usual_interval(rounds: int) -> int:
    """Rounds between evaluations where nobody says: about twenty of them."""
    return min(max(1, rounds // 20), 10_000)  # the ledger of a segment is written before it runs


def setting_of(plan: Plan, resolved: ResolvedPlan, task: Task, *, chunk: int, transcript: bool = False) -> ProgramSpec:
    """What the engine's program for this plan is compiled for."""
    return ProgramSpec(
        loss=task.loss,
        cohort=plan.cohort,
        population=task.clients,
        largest=task.largest,
        chunk=chunk,
        transcript=transcript,
        shuffled=resolved.trust == "shuffle",
        devices=jax.local_device_count(),
        augment=task.augment,
    )


def initial_carry(algorithm: Any, task: Task, key: Key) -> RoundState:
    """w_0 and what the server and every client begin with."""
    w0 = task.initial(jax.random.fold_in(key, 2**31 - 1))
    clients = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (task.clients, *leaf.shape)), algorithm.init_client(w0))
    return RoundState(algorithm.init_server(w0), clients)


def choose_chunk(task: Task, plan: Plan) -> int:
    """As many clients at a time as there is room for, in equal chunks."""
    share = -(-plan.cohort.capacity(task.clients) // jax.local_device_count())  # of one device
    return equal_chunk(share, int(room() / memory_of_a_client(task, plan)))


def equal_chunk(places: int, most: int) -> int:
    """At most `most` places, such that the last chunk has as many as the others, or nearly: no places for nobody."""
    return -(-places // -(-places // max(1, most)))


def room() -> float:
    """Bytes for the clients that are trained at a time: a CPU's cache, or a tenth of an accelerator's memory."""
    device = jax.local_devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    return stats["bytes_limit"] / 10 if stats else CACHE


def memory_of_a_client(task: Task, plan: Plan) -> float:
    """Bytes that training one client takes, roughly: some copies of the model, and its records."""
    record = 4 * int(np.prod(np.shape(task.data.x)[1:])) + 8
    batch = plan.method.batch_records or task.largest
    return 8 * 4 * task.d + 4 * record * min(task.largest, batch)


def environment() -> dict[str, Any]:
    """What a figure was made with."""
    device = jax.devices()[0]
    return {
        "sordino": sordino.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "device": f"{device.platform}: {device.device_kind}",
        "devices": jax.device_count(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def digest_of(*parts: Any) -> bytes:
    """Of texts, and of arrays in trees: what decides how a computation ends."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str | bytes):
            digest.update(part.encode() if isinstance(part, str) else part)
        else:
            for leaf in jax.tree.leaves(part):
                if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                    leaf = jax.random.key_data(leaf)
                digest.update(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data)
    return digest.digest()


def load_model(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a saved model, by their path in the parameters."""
    from safetensors.numpy import load_file

    return load_file(path)


def metrics_row(
    rounds: int, measured: dict[str, float], info: RoundInfo, plan: Plan, resolved: ResolvedPlan
) -> dict[str, Any]:
    """One line of metrics. Everything computed on private data stands under "not_private"."""
    ratio = float(np.mean(info.signal_to_noise))
    return {
        "round": rounds,
        **measured,
        **spent(rounds, plan, resolved),
        **(
            {}
            if info.server is None
            else {name: float(np.mean(value)) for name, value in info.server._asdict().items()}
        ),
        "not_private": {
            "participants": float(np.mean(info.participants)),
            "mean_norm": float(np.mean(info.mean_norm)),
            "clipped_share": float(np.mean(info.clipped_share)),
            "dropped": int(np.sum(info.dropped)),
            "signal_to_noise": ratio if math.isfinite(ratio) else None,
        },
    }


def spent(rounds: int, plan: Plan, resolved: ResolvedPlan) -> dict[str, float | str]:
    """epsilon so far, against the observer who is promised something, and whose it is; "inf" for JSON."""
    total = resolved.certificate.total(resolved.promised)
    event = resolved.event_for(resolved.promised, rounds)
    epsilon = epsilon_of(event, total.delta, plan.relation)
    so_far = dataclasses.replace(total, accountant=account_of(event, plan.relation).accountant)
    return {"epsilon": epsilon if math.isfinite(epsilon) else "inf", "epsilon_of": so_far.whose}


def storable(value: Any) -> Any:
    """For JSON, which has no NaN and no infinity: null, as in a run that diverged."""
    if isinstance(value, dict):
        return {name: storable(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [storable(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class RunFiles:
    """A run's folder."""

    def __init__(
        self,
        folder: Path,
        ledger: Ledger,
        entered: set[tuple[int | None, str, tuple[Observer, ...]]],
        releases: tuple[Release, ...],
    ) -> None:
        self.folder, self.ledger, self._entered, self._releases = folder, ledger, entered, releases
        self.metrics, self.checkpoint = folder / "metrics.jsonl", folder / "checkpoint.npz"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the ledger, also after an error, so that the run can be resumed."""
        self.ledger.close()

    @classmethod
    def open(
        cls,
        folder: Path,
        plan: Plan,
        task: Task,
        resolved: ResolvedPlan,
        seed: int,
        resume: bool,
        setting: ProgramSpec,
    ) -> RunFiles:
        """Create a run's folder, or take it up again."""
        ledger_path = folder / "ledger.jsonl"
        require(
            ledger_path.exists() or not resume, "resume", str(folder), "nothing has been run here: run without --resume"
        )
        require(
            resume or not ledger_path.exists(), "run", str(folder), "exists already: choose another name, or --resume"
        )
        record = read_ledger(ledger_path) if resume else None
        name_of_run = secrets.token_hex(8) if record is None else str(record.description.get("run"))
        description = _description(plan, task, resolved, name_of_run, setting.transcript)
        records = _digest_of_secrets(task, seed, setting).hex()
        # Another run goes through the records anew.
        releases = tuple(
            (name, observers, of_run(event, f"run {name_of_run}")) for name, observers, event in resolved.releases
        )
        if record is not None:
            entered = _entered(record, folder, description, releases)
            # Rounds that run again must draw the same noise, and on other records the two would show what differs.
            require_same_records(
                folder, records, "resume", "its seed, records, loss, chunk or devices have changed since"
            )
            return cls(folder, Ledger.open(ledger_path), entered, releases)
        folder.mkdir(parents=True, exist_ok=True)
        certificate = json.dumps(resolved.certificate.to_json(), indent=2)
        write_atomically(folder / "certificate.json", certificate.encode())
        write_atomically(folder / "environment.json", json.dumps(environment() | {"seed": seed}, indent=2).encode())
        write_atomically(folder / RECORDS, records.encode())
        worst = {}
        for observer in {observer for _, observers, _ in releases for observer in observers}:
            joint = of_one_round([event for _, observers, event in releases if observer in observers])
            worst[observer] = joint[0] if len(joint) == 1 else Composed(tuple(joint))
        ledger = Ledger.create(
            ledger_path,
            unit=resolved.certificate.guarantees[0].unit,
            relation=plan.relation,
            worst_release=worst,
            description=description,
        )
        return cls(folder, ledger, set(), releases)

    def record_releases(self, start: int, stop: int) -> None:
        """Enter the rounds [start, stop) before they run, unless a killed run did already."""
        for round in range(start, stop):
            for name, observers, event in self._releases:
                if (round, name, observers) not in self._entered:
                    self.ledger.append(round=round, release=name, observers=observers, event=event)

    def append_metrics(self, row: dict[str, Any]) -> None:
        """One line."""
        with self.metrics.open("a") as file:
            file.write(json.dumps(storable(row), allow_nan=False) + "\n")

    def metrics_until(self, rounds: int, spent: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
        """The lines up to a round, with what was `spent`; later ones, of a segment that will run again, are removed."""
        kept, rows = [], []
        lines = self.metrics.read_bytes().decode(errors="replace").splitlines() if self.metrics.exists() else []
        for number, line in enumerate(lines):
            try:
                row = json.loads(line)
                wanted = row["round"] <= rounds
            except (ValueError, KeyError, TypeError):
                if number < len(lines) - 1:  # a crash tears the last line only
                    remedy = "cannot be read: take the file away to go on without what it holds; nothing else is lost"
                    raise InvalidInput("metrics", f"{self.metrics}, line {number + 1}", remedy) from None
                continue
            if wanted:
                row |= spent(row["round"])
                kept.append(json.dumps(row) + "\n")
                rows.append({name: math.nan if value is None else value for name, value in row.items()})
        write_atomically(self.metrics, "".join(kept).encode())
        return rows

    def finish(self, params: Any) -> None:
        """Save the model."""
        from safetensors.numpy import save

        named = {
            jax.tree_util.keystr(path) or "params": np.asarray(leaf)
            for path, leaf in jax.tree_util.tree_leaves_with_path(params)
        }
        write_atomically(self.folder / "model.safetensors", save(named))


def require_same_records(folder: Path, records: str, field: str, otherwise: str) -> None:
    """Refuse to go on where the folder was begun with other records, or does not say with which."""
    known = folder / RECORDS
    remedy = f"{RECORDS} is missing, so that nobody knows on what it was begun: restore it, or choose another name"
    require(known.exists(), field, str(folder), remedy)
    require(known.read_text() == records, field, str(folder), f"{otherwise}: choose another name")


def _digest_of_secrets(task: Task, seed: int, setting: ProgramSpec) -> bytes:
    """Of all that a release comes from beside the plan: records, first model, loss, changes to images, and the seed.

    And of the order in which sums are added up, on which last bits hang: the chunk follows from the largest client.
    """
    key, x, y = jax.random.key(seed), task.records.x[:1], task.records.y[:1]
    w = task.initial(key)
    programs = [jax.make_jaxpr(jax.grad(task.loss))(w, Batch(x, y, jnp.ones(1)))]
    if task.augment is not None:
        programs.append(jax.make_jaxpr(task.augment)(key, x))
    # Less where functions lie in memory.
    texts = [re.sub("0x[0-9a-f]+", "", str(program)) for program in programs]
    constants = [value for program in programs for value in _constants(program.jaxpr, program.consts)]
    return digest_of(task.records, w, *texts, constants, repr((seed, setting.chunk, setting.devices)))


def _constants(program: Any, own: Sequence[Any]) -> Iterator[Any]:
    """What a program has of its own, and so have the programs inside it, as a loss that is compiled already."""
    yield from own
    for step in program.eqns:
        if step.primitive.name in ("pure_callback", "io_callback"):
            yield secrets.token_bytes(16)  # what Python would answer is not known: such a run is never the same again
        yield from (value.val for value in step.invars if isinstance(value, Literal))
        for inside in jax.tree.leaves(step.params, is_leaf=lambda value: hasattr(value, "eqns")):
            if hasattr(inside, "jaxpr"):
                yield from _constants(inside.jaxpr, inside.consts)
            elif hasattr(inside, "eqns"):
                yield from _constants(inside, ())


def _digest_of_generator() -> str:
    """Of words and normals that a key gives here: other settings or versions of JAX would draw other noise."""
    key_bits, key_normal = jax.random.split(jax.random.fold_in(jax.random.key(0), 1))
    return digest_of(jax.random.bits(key_bits, (8,)), jax.random.normal(key_normal, (8,))).hex()


def _description(plan: Plan, task: Task, resolved: ResolvedPlan, name: str, transcript: bool) -> dict[str, Any]:
    """What the ledger's header says of the run: what `certify` needs again, and what a resumed run must agree with.

    Others may see it: it holds neither the seed, nor anything of the records, not even how many a client has.
    """
    totals = [
        guarantee
        for guarantee in resolved.certificate.guarantees
        if guarantee.scope == "all rounds" and guarantee.client is None
    ]
    shape = (task.name, task.model.name, task.d, task.clients)
    same = (plan, shape, sordino.__version__, transcript)
    return {
        "task": task.name,
        "delta": totals[0].delta,
        "units": totals[0].units,
        "rounds": plan.rounds,
        "run": name,
        "assumptions": {str(total.observer): list(total.assumptions) for total in totals},
        "warnings": [[w.code, w.message] for w in resolved.certificate.warnings],
        # Rounds that run again after a crash must be the same rounds: same method, noise, cohort, relation and data.
        # Who draws the noise, and from what: drawn anew, it would be another release.
        "fingerprint": digest_of(repr(same), _digest_of_generator()).hex(),
    }


def _entered(
    record: LedgerRecord, folder: Path, description: dict[str, Any], releases: tuple[Release, ...]
) -> set[tuple[int | None, str, tuple[Observer, ...]]]:
    """The releases that a ledger holds; refuses one of another run, whose rounds would not be the same again."""
    planned = {(name, observers): event for name, observers, event in releases}
    released = [entry for entry in record.entries if entry.kind == "release"]
    same = all(planned.get((entry.release, entry.observers)) == entry.event for entry in released)
    remedy = "was started with another configuration or version: resume with the same, or choose another name"
    require(same and record.description == description, "resume", str(folder), remedy)
    return {(entry.round, entry.release, entry.observers) for entry in released}
