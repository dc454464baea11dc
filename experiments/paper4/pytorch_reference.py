"""Cells of paper 4's Table 3 in PyTorch: a second implementation, to tell our mistakes from the paper's settings.

    python -m experiments.paper4.pytorch_reference --method dp-sgd --beta 0.01 --gamma 1 --data cifar10.npz

With --out the last evaluation is added to a result file, beside those of other cells.

It shares no line with ours: layers, first weights, batch statistics with running averages, epochs in shuffled order and
seeds are PyTorch's, numbers are float32. Only the setting is the same: ten workers with 32 images each, which are
shifted by up to four pixels and mirrored every other time, a tenth of the training images held out, no noise. Needs
PyTorch, which nothing else here does, and a GPU, where a round is one CUDA graph.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

WORKERS, IMAGES, PADDING = 10, 32, 4
ALPHA = 0.01
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as in the code that the paper builds on
METHODS = ("dp-sgd", "norm-ec", "norm-ec server-normalized", "clip21")


class Block(nn.Module):
    """Two convolutions beside a shortcut without parameters."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.stride = outputs // inputs
        self.conv1 = nn.Conv2d(inputs, outputs, 3, self.stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, C, H, W]."""
        shortcut = x
        if self.stride == 2:
            quarter = self.conv1.out_channels // 4
            shortcut = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, quarter, quarter))
        x = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(x)) + shortcut)


def resnet20() -> nn.Sequential:
    """With He's first weights in kernels and in the last layer."""
    first = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    widths = [16] * 4 + [32] * 3 + [64] * 3
    blocks = [Block(before, after) for before, after in itertools.pairwise(widths)]
    model = nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight)
    return model


def flattened(model: nn.Module) -> Tensor:
    """All parameters as one vector, which they are views of from now on."""
    parameters = list(model.parameters())
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
    first = 0
    for parameter in parameters:
        parameter.data = flat[first : first + parameter.numel()].view_as(parameter)
        first += parameter.numel()
    return flat


class Images:
    """Pixels as bytes on the device, standardised when they are read."""

    def __init__(self, x: np.ndarray, y: np.ndarray, device: str) -> None:
        self.x = torch.as_tensor(x).permute(0, 3, 1, 2).contiguous().to(device)
        self.y = torch.as_tensor(y).long().to(device)
        shape = (1, 3, 1, 1)
        self.mean, self.deviation = (torch.tensor(c, device=device).view(shape) for c in (MEAN, DEVIATION))

    def standardized(self, pixels: Tensor) -> Tensor:
        """With ImageNet's means and deviations."""
        return (pixels.float() / 255 - self.mean) / self.deviation

    def changed(self, rows: Tensor) -> Tensor:
        """Shifted into black, mirrored every other time."""
        n, device = len(rows), rows.device
        padded = functional.pad(self.x[rows], (PADDING,) * 4)
        corner = torch.randint(0, 2 * PADDING + 1, (n, 2), device=device)
        along = torch.arange(32, device=device)
        mirrored = torch.rand(n, 1, device=device) < 0.5
        down = corner[:, :1] + along
        across = corner[:, 1:] + torch.where(mirrored, 31 - along, along)
        each = torch.arange(n, device=device)[:, None, None]
        cut = padded.permute(0, 2, 3, 1)[each, down[:, :, None], across[:, None, :]]
        return self.standardized(cut.permute(0, 3, 1, 2))


def rounds_of(workers: list[Tensor]) -> Iterator[Tensor]:
    """Rows [workers, images] for ever: each worker goes through its images in a new order every epoch."""
    while True:
        orders = [mine[torch.randperm(len(mine), device=mine.device)] for mine in workers]
        for first in range(0, len(workers[0]) - IMAGES + 1, IMAGES):
            yield torch.stack([order[first : first + IMAGES] for order in orders])


class Round:
    """One round on `images` [workers, n, ...], in place: x, g and the workers' memories."""

    def __init__(self, method: str, beta: float, gamma: float, model: nn.Module) -> None:
        self.method, self.beta, self.gamma, self.model = method, beta, gamma, model
        self.x = flattened(model)
        self.g = torch.zeros_like(self.x)
        self.memories = self.x.new_zeros(WORKERS, len(self.x))
        self.images = self.x.new_zeros(WORKERS, IMAGES, 3, 32, 32)
        self.labels = self.images.new_zeros(WORKERS, IMAGES, dtype=torch.long)

    @property
    def state(self) -> list[Tensor]:
        """All that a round changes."""
        return [self.x, self.g, self.memories, *self.model.buffers()]

    def __call__(self) -> None:
        """Take it."""
        total = torch.zeros_like(self.x)
        for worker, memory in enumerate(self.memories):
            rest = self.gradient(worker) - memory  # DP-SGD's memory stays zero
            length = rest.norm()
            clips = self.method == "clip21"
            delta = rest * (self.beta / length).clamp(max=1) if clips else self.beta * rest / (ALPHA + length)
            total += delta
            if self.method != "dp-sgd":
                memory += delta
        step = total / WORKERS
        if self.method != "dp-sgd":
            self.g += step
            step = self.g / self.g.norm() if self.method == "norm-ec server-normalized" else self.g
        self.x -= self.gamma * step

    def gradient(self, worker: int) -> Tensor:
        """Of one worker's mean loss, as one vector."""
        loss = functional.cross_entropy(self.model(self.images[worker]), self.labels[worker])
        return torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, list(self.model.parameters()))])


def captured(take: Round) -> Callable[[], None]:
    """`take` as one CUDA graph; its state is put back after the rounds that warm it up."""
    before = [tensor.clone() for tensor in take.state]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            take()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        take()
    for tensor, value in zip(take.state, before, strict=True):
        tensor.copy_(value)
    return graph.replay


@torch.no_grad()
def accuracy(model: nn.Module, held_out: Images, *, by_running: bool) -> float:
    """In per cent, standardised by running averages, or by 1,000 test images as ours are."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    model.train(not by_running)
    for norm in norms:
        norm.momentum = 0.0  # looking changes nothing
    parts = zip(held_out.x.split(1000), held_out.y.split(1000), strict=True)
    right = sum(int((model(held_out.standardized(x)).argmax(1) == y).sum()) for x, y in parts)
    for norm in norms:
        norm.momentum = 0.1
    model.train()
    return 100 * right / len(held_out.y)


def main() -> None:
    """Train one cell for so many minutes, and print how far it came."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=METHODS, required=True)
    parser.add_argument("--beta", type=float, required=True)
    parser.add_argument("--gamma", type=float, required=True)
    parser.add_argument("--data", type=Path, required=True, help="cifar10.npz: x_train, y_train")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--rounds", type=int, default=42_000)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--evaluate-every", type=int, default=700)
    parser.add_argument("--out", type=Path, help="a result file, which may exist")
    parser.add_argument("--commit", help="what the code is at, where git does not know")
    given = parser.parse_args()
    if not given.data.is_file():
        parser.error(f"--data {given.data}: there is no such file; `sordino data fetch cifar10` says where to get it")
    torch.manual_seed(given.seed)
    torch.backends.cudnn.benchmark = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with np.load(given.data) as arrays:
        x, y = arrays["x_train"], arrays["y_train"].reshape(-1)
    order = np.random.default_rng(given.seed).permutation(len(y))
    kept = len(y) * 9 // 10
    train, held_out = (Images(x[part], y[part], device) for part in (order[:kept], order[kept:]))
    workers = list(torch.arange(kept, device=device).view(WORKERS, -1))
    model = resnet20().to(device).train()
    one = Round(given.method, given.beta, given.gamma, model)
    take = captured(one) if device == "cuda" else one
    shown = {name: str(value) if isinstance(value, Path) else value for name, value in vars(given).items()}
    print(json.dumps(shown | {"device": device, "torch": torch.__version__}))
    began, batches = time.monotonic(), rounds_of(workers)
    for k in range(1, given.rounds + 1):
        rows = next(batches)
        one.images.copy_(train.changed(rows.reshape(-1)).view_as(one.images))
        one.labels.copy_(train.y[rows])
        take()
        late = k % 20 == 0 and time.monotonic() - began > 60 * given.minutes
        if k % given.evaluate_every == 0 or late or k == given.rounds:
            running, batch = (accuracy(model, held_out, by_running=way) for way in (True, False))
            seconds = round(time.monotonic() - began, 1)
            last = {"round": k, "running averages": running, "batch": batch}
            print(json.dumps(last | {"seconds": seconds}), flush=True)
        if late:
            break
    if given.out is not None:
        add_to(given.out, given, last)


def add_to(path: Path, given: argparse.Namespace, last: dict[str, float]) -> None:
    """Two rows for this cell: accuracy by the statistics of batches, as ours is measured, and by running averages."""
    from sordino.experiments.provenance import provenance

    words = ["--method", given.method, "--beta", f"{given.beta:g}", "--gamma", f"{given.gamma:g}"]
    words += ["--data", given.data.name, "--seed", str(given.seed), "--rounds", str(given.rounds)]
    command = "python -m experiments.paper4.pytorch_reference " + shlex.join(words)
    rows = [
        {
            "row": f"beta {given.beta:g}, gamma {given.gamma:g}, {last['round']} rounds",
            "column": f"{given.method}, {way}",
            "paper": None,
            "mean": float(f"{last[way]:.5g}"),
            "std": None,
            "seeds": [given.seed],
        }
        for way in ("batch", "running averages")
    ]
    made = provenance(command, given.commit)
    made["versions"]["torch"] = torch.__version__
    if path.exists():
        before = json.loads(path.read_text())
        rows = [*before["rows"], *rows]
        made["command"] = f"{before['provenance']['command']}; {made['command']}"
    result = {
        "name": path.stem,
        "metric": "accuracy (%) on the held-out tenth after the last round, a second implementation in PyTorch",
        "note": "It shares no line with ours. Accuracy by the statistics of 1,000 test images, as ours is measured, "
        "and by running averages of training batches.",
        "rows": rows,
        "guarantees": [],
        "provenance": made,
    }
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
