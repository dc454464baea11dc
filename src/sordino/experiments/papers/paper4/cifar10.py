"""Paper 4 on CIFAR-10: Table 3 with Figures 7 and 10, and the private heat maps of Figures 11 and 12.

    python -m sordino.experiments.papers.paper4.cifar10 table3  --column norm-ec --epochs 300 --minutes 9
    python -m sordino.experiments.papers.paper4.cifar10 private --column clip21  --epochs 300 --minutes 9
    python -m sordino.experiments.papers.paper4.cifar10 private-by-norm --column norm-ec --epochs 15
    python -m sordino.experiments.papers.paper4.cifar10 table3  --write results/paper4/table3.json --commit HASH

The chosen settings of a column are one vmapped program: beta, gamma, clip and noise are traced, and settings share
batches, augmentation, first weights and noise (seed 42). The run files beside this one are single cells of the same. A
cell goes on from its checkpoint in runs/paper4/ when called again, so that a table can be made in pieces; `--write`
collects the cells that are there. The paper's "300 rounds" are 300 epochs of 140 rounds. Layers compute in bfloat16
unless `--dtype float32` is given. Needs JAX, NumPy and SciPy alone.

The paper sets its noise by sigma = sqrt(K log(1/delta)) / epsilon. `private` takes that as the std of a coordinate of a
message, as a promise about epsilon must; the norm of the noise is then sigma sqrt(d), 3,800 times a message's.
`private-by-norm` takes it as the norm, E||z||^2 = sigma^2, which is what the paper's Lemma 5 writes: a std of
sigma / sqrt(d), which protects nobody, as the certificate says.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sordino as so
from sordino.errors import require
from sordino.experiments.provenance import provenance
from sordino.privacy.gaussian import gaussian_epsilon
from sordino.privacy.published import normec_noise
from sordino.report.sweeps import plot_heat_map
from sordino.simulation.checkpoint import load_checkpoint, save_checkpoint, write_atomically
from sordino.simulation.engine import Carry, Setting, evaluate, run_rounds
from sordino.simulation.planning import Plan
from sordino.simulation.running import environment
from sordino.simulation.tasks import Task

WORKERS, BATCH, SEED, ALPHA = 10, 32, 42, 0.01
PARAMETERS = 269_722  # d of ResNet-20 for CIFAR-10
EPSILON, DELTA, MESSAGES = 8.0, 1e-5, 300  # what the paper claims, and for how many messages
SIGMA = normec_noise(MESSAGES, EPSILON, DELTA)


def norm_ec(beta: float, gamma: float) -> Any:
    """alpha-NormEC without server normalization."""
    return so.error_feedback(beta=beta, server_lr=gamma, bound=so.smoothed_normalize(ALPHA), batch_size=BATCH)


def norm_ec_server_normalized(beta: float, gamma: float) -> Any:
    """Algorithm 1 as printed."""
    bound = so.smoothed_normalize(ALPHA)
    return so.error_feedback(beta=beta, server_lr=gamma, bound=bound, batch_size=BATCH, server_normalization=True)


def clip21(beta: float, gamma: float) -> Any:
    """The paper's beta is the clip."""
    return so.error_feedback(beta=1.0, server_lr=gamma, bound=so.clip(beta), batch_size=BATCH)


def dp_sgd(beta: float, gamma: float) -> Any:
    """Eq. (2) with beta Norm_alpha: only beta gamma counts."""
    return so.dp_sgd(server_lr=beta * gamma, bound=so.smoothed_normalize(ALPHA), batch_size=BATCH)


COLUMNS: dict[str, Callable[[float, float], Any]] = {
    "norm-ec": norm_ec,
    "norm-ec server-normalized": norm_ec_server_normalized,
    "clip21": clip21,
    "dp-sgd": dp_sgd,
}
# (beta, the paper's best gamma, its accuracy)
TABLE3: dict[str, list[tuple[float, float, float]]] = {
    "norm-ec": [(0.01, 0.1, 84.04), (0.1, 0.1, 86.09), (1.0, 0.1, 84.80), (10.0, 0.01, 79.25)],
    "norm-ec server-normalized": [(0.01, 0.01, 82.86), (0.1, 0.1, 85.43), (1.0, 0.1, 84.29), (10.0, 0.1, 81.48)],
    "clip21": [(0.01, 0.1, 83.00), (0.1, 0.1, 85.91), (1.0, 0.1, 84.78), (10.0, 0.1, 83.19)],
    "dp-sgd": [(0.01, 1.0, 51.10), (0.1, 1.0, 79.68), (1.0, 1.0, 83.89), (10.0, 0.1, 84.50)],
}
BETAS, GAMMAS = (0.001, 0.01, 0.1, 1.0), (0.001, 0.01, 0.1, 1.0)
PRIVATE = ("norm-ec", "norm-ec server-normalized", "clip21")


def cells(table: str, column: str, betas: tuple[float, ...]) -> list[dict[str, Any]]:
    """The settings of a column."""
    if table == "table3":
        rows = [row for row in TABLE3[column] if row[0] in betas]
        return [{"row": f"beta {beta:g}", "beta": beta, "gamma": gamma, "paper": paper} for beta, gamma, paper in rows]
    return [
        {"row": f"beta {beta:g}, gamma {gamma:g}", "beta": beta, "gamma": gamma, "paper": None}
        for beta in betas
        for gamma in GAMMAS
    ]


def plan_of(table: str, column: str, cell: dict[str, Any], rounds: int, d: int) -> Plan:
    """What one cell runs; in private with the paper's noise for 300 messages, accounted over those that are sent."""
    method = COLUMNS[column](cell["beta"], cell["gamma"])
    if table == "table3":
        return so.plan(method, rounds=rounds)
    sigma = SIGMA if table == "private" else SIGMA / math.sqrt(d)
    return so.plan(method, rounds=rounds, trust="local", noise_multiplier=sigma, delta=DELTA)


def stacked(parts: list[Any]) -> Any:
    """Pytrees of one structure as one, with a leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *parts)


def file_of(folder: Path, column: str, cell: dict[str, Any]) -> Path:
    """Where a cell is kept: its figures in .json, its state in .npz beside them."""
    name = f"{column} {cell['row']}".replace(" ", "-").replace(",", "")
    return folder / f"{name}.json"


def train(table: str, column: str, arguments: argparse.Namespace) -> None:
    """Train cells of a column from their checkpoints on, for so many epochs or minutes, and keep their figures."""
    started = time.perf_counter()
    task = so.task(
        "cifar10",
        clients=WORKERS,
        partition="iid",
        partition_seed=SEED,
        model=f"resnet20:{arguments.norm},{arguments.dtype}",
        augment="crop-flip",
        held_out=0.1,
    )
    if arguments.images:
        task = fewer(task, arguments.images)
    per_epoch = max(1, int(task.data.size.sum()) // (WORKERS * BATCH))
    chosen = cells(table, column, arguments.betas)
    plans = [plan_of(table, column, cell, arguments.epochs * per_epoch, task.d) for cell in chosen]
    resolved = [plan.resolve(task.d, task.clients) for plan in plans]
    methods, mechanisms = (
        jax.tree.map(jnp.float32, stacked(parts))
        for parts in ([one.algorithm for one in resolved], [one.mechanism for one in resolved])
    )
    setting = Setting(
        task.loss,
        plans[0].cohort,
        WORKERS,
        task.largest,
        resolved[0].trust,
        chunk=WORKERS,
        augment=task.augment,
    )
    key = jax.random.key(SEED)
    w0 = task.initial(jax.random.fold_in(key, 2**31 - 1))

    def begin(method: Any) -> Carry:
        memories = jax.tree.map(lambda leaf: jnp.zeros((WORKERS, *leaf.shape)), method.init_client(w0))
        return Carry(method.init_server(w0), memories)

    def one_epoch(method: Any, mechanism: Any, carry: Carry, first: jax.Array) -> tuple[Carry, Any]:
        after, info = run_rounds(method, mechanism, task.records, carry, key, first, setting=setting, rounds=per_epoch)
        return after, info.mean_norm[-1]

    epoch_of_all = jax.jit(jax.vmap(one_epoch, in_axes=(0, 0, 0, None)), donate_argnums=2)
    accuracy_of_all = jax.jit(
        jax.vmap(lambda w: evaluate(w, *task.test, predict=task.predict))  # (loss, accuracy)
    )
    folder = arguments.folder / table
    folder.mkdir(parents=True, exist_ok=True)
    files = [file_of(folder, column, cell) for cell in chosen]
    setup = {"norm": arguments.norm, "dtype": arguments.dtype, "images": arguments.images}
    epochs, carries, histories = [], [], []
    for file, one in zip(files, resolved, strict=True):
        done, carry, history = 0, begin(one.algorithm), []
        if file.exists():
            before = json.loads(file.read_text())
            remedy = f"{file} was begun with {before['setup']}: go on with the same, or give another --folder"
            require(before["setup"] == setup, "options", setup, remedy)
            (done, carry), history = load_checkpoint(_state(file), carry), before["history"]
        epochs.append(done)
        carries.append(carry)
        histories.append(history)
    epoch = epochs[0]
    remedy = "the chosen cells stand at different epochs: choose those of one with --betas"
    require(set(epochs) == {epoch}, "epochs", sorted(set(epochs)), remedy)
    carry = stacked(carries)
    begun = time.perf_counter()
    while epoch < arguments.epochs and time.perf_counter() - started < 60 * arguments.minutes:
        carry, norms = epoch_of_all(methods, mechanisms, carry, jnp.int32(epoch * per_epoch))
        epoch += 1
        jax.block_until_ready(norms)
        out_of_time = time.perf_counter() - started >= 60 * arguments.minutes
        if epoch % arguments.evaluate_every and epoch < arguments.epochs and not out_of_time:
            continue
        w = jax.vmap(lambda method, server: method.params(server))(methods, carry.server)
        loss, accuracy = accuracy_of_all(w)
        for history, *values in zip(histories, accuracy, loss, norms, strict=True):
            history.append({"epoch": epoch} | dict(zip(("accuracy", "loss", "norm"), _finite(values), strict=True)))
        shown = " ".join(f"{100 * history[-1]['accuracy']:.1f}" for history in histories)
        seconds = (time.perf_counter() - begun) / (epoch - epochs[0])
        print(f"{column}, epoch {epoch}: {shown} % ({seconds:.2f} s an epoch)", flush=True)
    for place, (file, cell) in enumerate(zip(files, chosen, strict=True)):
        save_checkpoint(_state(file), epoch, jax.tree.map(lambda leaf, place=place: leaf[place], carry))
        kept = {
            "column": column,
            "cell": cell,
            "epochs": epoch,
            "messages": epoch * per_epoch,
            "setup": setup,
            "history": histories[place],
            "made": environment(),
        }
        write_atomically(file, json.dumps(kept).encode())
    print(f"{column}: {epoch} epochs, {epoch * per_epoch} messages, {time.perf_counter() - started:.0f} s")


def _state(file: Path) -> Path:
    return file.with_suffix(".npz")


def fewer(task: Task, images: int) -> Task:
    """The first images of each worker, for a trial run."""
    data = task.data
    keep = np.concatenate([np.arange(start, start + images) for start in data.start])
    start, size = np.arange(WORKERS, dtype=np.int32) * images, np.full(WORKERS, images, np.int32)
    small = data._replace(
        x=data.x[keep], y=data.y[keep], start=start, size=size, x_test=data.x_test[:100], y_test=data.y_test[:100]
    )
    return Task(task.name, small, task.model, augment=task.augment)


def write(table: str, path: Path, folder: Path, commit: str | None) -> None:
    """The cells that have been made, as one table, and a picture of them."""
    parts = [json.loads(part.read_text()) for part in (folder / table).glob("*.json")]
    parts.sort(key=lambda part: (part["cell"]["beta"], list(COLUMNS).index(part["column"]), part["cell"]["gamma"]))
    rows, guarantees = [], []
    for part in parts:
        cell, history, setup = part["cell"], part["history"], part["setup"]
        require(setup == parts[0]["setup"] and setup["images"] is None, "folder", str(folder), "holds trial runs")
        best = history[-1] if table == "table3" else max(history, key=lambda row: row["accuracy"])
        epochs = history[-1]["epoch"]  # the highest is chosen from all of them, so all of them count
        messages = epochs * part["messages"] // part["epochs"]
        place = {"row": cell["row"], "column": part["column"]}
        figures = {"paper": cell["paper"], "mean": 100 * best["accuracy"], "std": None, "seeds": [SEED]}
        sent = {"epochs": epochs, "messages": messages}
        rows.append(place | figures | {"beta": cell["beta"], "gamma": cell["gamma"]} | sent)
        plan = plan_of(table, part["column"], cell, messages, PARAMETERS)
        claim = {"claim": f"epsilon {EPSILON:g} at delta {DELTA:g}"} if table != "table3" else {}
        guarantees.append(place | plan.resolve(PARAMETERS, WORKERS).certificate.to_json() | claim)
    epochs = max(row["epochs"] for row in rows)
    command = f"python -m sordino.experiments.papers.paper4.cifar10 {table} --column ... --epochs {epochs}"
    what = "test accuracy (%), gamma as in the paper," if table == "table3" else "highest test accuracy (%)"
    result: dict[str, Any] = {
        "name": path.stem,
        **({} if epochs == 300 else {"scope": f"{epochs} of 300 epochs"}),
        "metric": f"{what} within {epochs} epochs, ResNet-20 ({parts[0]['setup']['dtype']}) on CIFAR-10",
        "note": note_of(table, epochs, rows),
        "rows": rows,
        "guarantees": guarantees,
        "provenance": provenance(command, commit, parts[0]["made"]),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    if table == "table3":
        from sordino.experiments.specs import FigureSpec  # these need more than JAX
        from sordino.report.figures import plot_curves

        figure = FigureSpec(name="curves", title="Test accuracy over rounds")
        numbers = [
            (
                part["cell"]["row"],
                f"{part['column']}, gamma {part['cell']['gamma']:g}",
                row["epoch"] * part["messages"] / part["epochs"],
                100 * row["accuracy"],
            )
            for part in parts
            for row in part["history"]
        ]
        plot_curves(figure, numbers, path.with_suffix(".png"))
    else:
        table_rows = [row | {"accuracy": row["mean"] / 100, "diverged": False} for row in rows]
        plot_heat_map(table_rows, ["column", "beta", "gamma"], "accuracy-last", path.with_suffix(".png"))


def note_of(table: str, epochs: int, rows: list[dict[str, Any]]) -> str:
    """What a reader must know beside the figures."""
    shorter = "" if epochs == 300 else f"{epochs} epochs, not the paper's 300. "
    betas = {row["beta"] for row in rows}
    wanted = {beta for beta, *_ in TABLE3["norm-ec"]} if table == "table3" else set(BETAS)
    missing = ", ".join(f"{beta:g}" for beta in sorted(wanted - betas))
    shorter += f"Not run: beta {missing}. " if missing else ""
    if table == "table3":
        messages = rows[0]["messages"]
        honest = ", ".join(f"{epsilon:.4g} ({relation})" for relation, epsilon in honest_epsilons(messages).items())
        return (
            f"{shorter}No noise is added here, so these runs promise nothing. The noise of the paper's private runs, "
            f"std {SIGMA:.4g} for a claimed epsilon of {EPSILON:g}, over these {messages:,} messages of a "
            f"worker: epsilon {honest} at delta {DELTA:g} for one client against the server, over all of them (exact "
            "Gaussian)."
        )
    where = "in each coordinate has std" if table == "private" else "of a message has norm"
    best = max(row["mean"] for row in rows)
    spread = "; ".join(
        f"{column}: " + ", ".join(f"{beta} {points:.1f}" for beta, points in of_column.items())
        for column, of_column in spreads(rows).items()
    )
    learned = f"The best is {best:.1f}, which is next to chance (10 %), so that differences mean nothing."
    found = learned if best < 20 else f"Spread of the accuracy over gamma, in points: {spread}."
    return (
        f"{shorter}The noise {where} {SIGMA:.4g} times the message's bound. All cells see the same noise. {found} The "
        "paper's best is 77.56, without server normalization."
    )


def honest_epsilons(messages: int) -> dict[str, float]:
    """What the paper's noise in each coordinate promises a worker whose messages the server sees."""
    return {
        relation: gaussian_epsilon(units * math.sqrt(messages) / SIGMA, DELTA)
        for relation, units in (("zero-out", 1), ("replace-one", 2))
    }


def spreads(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """How far accuracy varies over gamma, for each method and beta, in points."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        found.setdefault(row["column"], {}).setdefault(f"beta {row['beta']:g}", []).append(row["mean"])
    return {
        column: {beta: max(values) - min(values) for beta, values in of_column.items()}
        for column, of_column in found.items()
    }


def _finite(values: Any) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in np.asarray(values)]


def main() -> None:
    """Train a column, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("table3", "private", "private-by-norm"))
    parser.add_argument("--column", choices=list(COLUMNS), action="append", help="may be repeated; all if left out")
    parser.add_argument("--betas", type=float, nargs="+", help="of the paper's, all if left out")
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after this long; a checkpoint is kept")
    parser.add_argument("--evaluate-every", type=int, default=5, help="epochs")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="that layers compute in")
    parser.add_argument("--norm", choices=("batch", "group"), default="batch")
    parser.add_argument("--images", type=int, help="of each worker, for a trial run")
    parser.add_argument("--folder", type=Path, default=Path("runs/paper4"))
    parser.add_argument("--write", type=Path, help="collect what has been trained into this file, and train nothing")
    parser.add_argument("--commit", default=None, help="what the code is at, for the record")
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.table, arguments.write, arguments.folder, arguments.commit)
        return
    usual = (0.01, 0.1, 1.0, 10.0) if arguments.table == "table3" else BETAS
    arguments.betas = tuple(arguments.betas or usual)
    for column in arguments.column or (COLUMNS if arguments.table == "table3" else PRIVATE):
        train(arguments.table, column, arguments)


if __name__ == "__main__":
    main()
