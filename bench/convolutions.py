"""`python -m bench.convolutions`: a user's plain `lax.conv` network beside a PyTorch loop over the same clients.

Every client takes ten steps by SGD from the same first weights, on batches of its own 60 records, and sends its update,
clipped to 1. Sordino runs through `so.simulate`, as a user would; PyTorch trains one client after another, on as many
threads as it chooses. Both round times are medians, and no test counts in them. PyTorch is not among what Sordino
installs: without it the bench says so. On a GPU, where PyTorch need not be, `--layers` takes Sordino's own `conv2d`
instead of the loop.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sordino as so
from sordino.data import FederatedData
from sordino.models import Model, from_loss, weighted_mean
from sordino.models._convolution import conv2d
from sordino.tasks import Task

RECORDS, STEPS, LR, ROUNDS = 60, 10, 0.05, 5


@dataclass(frozen=True)
class Case:
    """Two convolutions with pools, and two dense layers."""

    first: int  # channels of the first convolution
    second: int
    side: int  # of both kernels
    hidden: int
    batch: int
    clients: int
    colours: int = 1  # channels of an image

    @property
    def inputs(self) -> int:
        """Of the dense layers."""
        edge = ((28 - self.side + 1) // 2 - self.side + 1) // 2
        return edge * edge * self.second


CASES = (
    Case(1, 2, 3, 16, 10, 100),
    Case(4, 8, 4, 32, 60, 100),
    Case(8, 16, 5, 64, 20, 50),
    Case(16, 32, 3, 64, 10, 30),
    Case(16, 32, 5, 128, 60, 10, colours=3),
    Case(32, 64, 5, 512, 10, 20),
    Case(64, 64, 3, 128, 30, 10),
)


def shapes(case: Case) -> tuple[tuple[int, ...], ...]:
    """Of the weights: kernels as [height, width, inputs, outputs]; every layer has a bias for its outputs."""
    kernels = ((case.side, case.side, case.colours, case.first), (case.side, case.side, case.first, case.second))
    return (*kernels, (case.inputs, case.hidden), (case.hidden, 10))


def first_weights(case: Case) -> list[tuple[np.ndarray, ...]]:
    """A pair of weights and bias for each layer."""
    rng = np.random.default_rng(0)
    drawn = []
    for shape in shapes(case):
        edge = 1 / np.sqrt(np.prod(shape[:-1]))
        drawn.append(tuple(rng.uniform(-edge, edge, size).astype(np.float32) for size in (shape, shape[-1:])))
    return drawn


def plain_convolution(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """What anybody would write."""
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=layout)


def shipped_convolution(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Sordino's own, whose images are [channels, height, width, records]."""
    return conv2d(x.transpose(3, 1, 2, 0), kernel).transpose(3, 1, 2, 0)


def model_of(case: Case, convolution: Callable[[jax.Array, jax.Array], jax.Array]) -> Model:
    """The network with one or the other convolution, as a user's own loss."""

    def logits(weights: Any, x: jax.Array) -> jax.Array:
        for kernel, bias in weights[:2]:
            x = jax.nn.relu(convolution(x, kernel) + bias)
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        (hidden, bias), (last, offset) = weights[2:]
        return jax.nn.relu(x.reshape(len(x), -1) @ hidden + bias) @ last + offset

    def loss(weights: Any, batch: Any) -> jax.Array:
        log_p = jax.nn.log_softmax(logits(weights, batch.x))
        return weighted_mean(-jnp.take_along_axis(log_p, batch.y[:, None], axis=1)[:, 0], batch.weight)

    return from_loss(lambda key: jax.tree.map(jnp.asarray, first_weights(case)), loss, logits)


def images(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Random records: speed does not depend on what they show."""
    rng = np.random.default_rng(1)
    n = case.clients * RECORDS
    return rng.standard_normal((n, 28, 28, case.colours), dtype=np.float32), rng.integers(0, 10, n, dtype=np.int32)


def sordino_seconds(case: Case, convolution: Callable[[jax.Array, jax.Array], jax.Array]) -> float:
    """A round through so.simulate: the median of the segments, after one in which programs are compiled."""
    x, y = images(case)
    start = np.arange(case.clients, dtype=np.int32) * RECORDS
    data = FederatedData(x, y, start, np.full(case.clients, RECORDS, np.int32), x[:10], y[:10], 10)
    task = Task("images", data, model_of(case, convolution))
    method = so.fedavg(
        local_steps=STEPS, local_lr=LR, batch_size=case.batch, bound=so.clip(1.0), message="difference", server_lr=1.0
    )
    clock: list[float] = []
    plan = so.plan(method, rounds=ROUNDS + 1, noise_multiplier=1.0)
    so.simulate(plan, task, seed=0, evaluate_every=1, progress=lambda row: clock.append(time.perf_counter()))
    return statistics.median(np.diff(clock).tolist())


def torch_seconds(case: Case) -> float:
    """A round of a loop over the clients in PyTorch."""
    import torch
    from torch import nn

    net = nn.Sequential(
        *(nn.Conv2d(case.colours, case.first, case.side), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(case.first, case.second, case.side), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(case.inputs, case.hidden), nn.ReLU(), nn.Linear(case.hidden, 10)),
    )
    parameters = list(net.parameters())
    x, y = (torch.from_numpy(part) for part in images(case))
    x, y = x.permute(0, 3, 1, 2).contiguous(), y.long()
    start = nn.utils.parameters_to_vector(parameters).detach()

    def update(client: int) -> Any:
        nn.utils.vector_to_parameters(start.clone(), parameters)
        order = client * RECORDS + torch.randperm(RECORDS)
        for step in range(STEPS):
            rows = order[(torch.arange(case.batch) + step * case.batch) % RECORDS]
            gradient = torch.autograd.grad(nn.functional.cross_entropy(net(x[rows]), y[rows]), parameters)
            with torch.no_grad():
                torch._foreach_add_(parameters, gradient, alpha=-LR)
        moved = nn.utils.parameters_to_vector(parameters).detach() - start
        return moved * (1 / moved.norm().clamp(min=1.0))

    times = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        total = torch.zeros_like(start)
        for client in range(case.clients):
            total += update(client)
        total += torch.randn_like(total)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def main() -> None:
    """One line a case, and the worst ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", action="store_true", help="beside the same network with Sordino's own conv2d")
    every = range(len(CASES))
    parser.add_argument("--cases", nargs="+", type=int, choices=every, default=every, help="of the table of cases")
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    arguments = parser.parse_args()
    if not arguments.layers:
        try:
            import torch  # noqa: F401
        except ImportError:
            sys.exit("PyTorch is not installed: pip install 'sordino[torch]', or take --layers")
    other = "layers" if arguments.layers else "torch_loop"
    worst = 0.0
    for case in (CASES[number] for number in arguments.cases):
        own = sordino_seconds(case, plain_convolution)
        beside = sordino_seconds(case, shipped_convolution) if arguments.layers else torch_seconds(case)
        worst = max(worst, own / beside)
        row = asdict(case) | {"lax_s": own, f"{other}_s": beside, "ratio": own / beside}
        if arguments.json:
            print(json.dumps(row), flush=True)
        else:
            what = f"{case.colours}-{case.first}-{case.second} channels, batches of {case.batch}"
            print(f"{what:32} {own:8.3f} s  {other} {beside:8.3f} s  ratio {own / beside:.2f}", flush=True)
    if not arguments.json:
        print(f"worst ratio {worst:.2f} on {jax.devices()[0].device_kind}")


if __name__ == "__main__":
    main()
