"""`sordino demo`: trains a private model on embedded data, prints the certificate and draws a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sordino.cli.output import require_picture
from sordino.cli.progress import live_progress
from sordino.errors import LARGEST_SEED
from sordino.files import require_folder

PICTURE = Path("runs/demo.png")


def demo_command(
    seed: Annotated[int, typer.Option(help="Seed of all randomness.", min=0, max=LARGEST_SEED)] = 0,
    rounds: Annotated[int, typer.Option(help="Rounds of training.", min=1)] = 60,
    picture: Annotated[Path, typer.Option(help="Where the picture goes.")] = PICTURE,
) -> None:
    """One tour: 1,438 images, each treated as a client, one model; and what anyone could learn about one client."""
    from rich.console import Console

    import sordino as so
    from sordino.report.curves import plot_history

    if picture == PICTURE:
        require_folder("picture", picture.parent)
        picture.parent.mkdir(exist_ok=True)
    require_picture("picture", picture)
    console = Console(highlight=False)
    task = so.task("digits")
    images = f"[bold]{task.clients} images[/] of handwritten digits, each treated as a client"
    console.print(f"{images}; logistic regression, d = {task.d}")
    method = so.fedavg(local_steps=5, local_lr=0.5, bound=so.normalize(1.0), server_lr=4.0, server_momentum=0.5)
    plan = so.plan(method, rounds=rounds, cohort="poisson:0.2", epsilon=8.0, delta=1e-4)
    resolved = plan.resolve(task.population)
    console.print(
        f"DP-NormFedAvg, {rounds} rounds, a secret fifth of the clients in each; "
        f"noise multiplier {resolved.summary['noise_multiplier']:.3f} for epsilon = 8\n"
    )
    with live_progress(plan.rounds) as progress:
        run = so.simulate(plan, task, seed=seed, progress=progress)
    with live_progress(plan.rounds) as progress:
        plain = so.simulate(so.plan(method, rounds=rounds, cohort="poisson:0.2"), task, seed=seed, progress=progress)
    console.print(
        f"test accuracy [bold]{100 * run.accuracy:.1f} %[/] with privacy, {100 * plain.accuracy:.1f} % without "
        f"(seed {seed}, {run.seconds + plain.seconds:.0f} s)\n"
    )
    console.print("[bold]Who could learn what about one client[/]")
    console.print(str(run.certificate))
    plot_history(run.history, "digits, each image a client, DP-NormFedAvg", picture)
    console.print(f"\naccuracy and epsilon over rounds: {picture}")
