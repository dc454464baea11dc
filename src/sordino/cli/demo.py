"""`sordino demo`: the calculator, and one mechanism at work on a real vector."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["demo_command"]


def demo_command(
    clients: Annotated[int, typer.Option(help="How many clients send a message.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of all randomness.")] = 0,
) -> None:
    """Send a real vector through a private, packed mechanism from many clients, and certify it."""
    import inspect
    import time

    import jax
    import jax.numpy as jnp
    import numpy as np
    from rich.console import Console
    from rich.progress import track

    import sordino as so
    from sordino.errors import require

    require(clients >= 2, "clients", clients, "the demo averages at least 2 clients")
    console = Console()
    # The vector: how often each letter occurs in this library's own documentation.
    text = "".join(inspect.getdoc(getattr(so, name)) or "" for name in so.__all__).lower()
    letters = [ord(letter) - ord("a") for letter in text if "a" <= letter <= "z"]
    vector = jnp.asarray(np.bincount(letters, minlength=26), jnp.float32)

    bounder = so.normalize(1.0)
    mechanism = so.qtdl(d=vector.size, levels=64, epsilon=8.0, delta=1e-6, relation=so.Relation.REPLACE_ONE)
    bounded, info = bounder(vector)
    console.print(f"[bold]A real vector[/]: counts of {vector.size} letters in {len(letters)}, norm {info.norm:.1f}")
    calibration = mechanism.calibration
    console.print(
        f"normalised, quantised to {mechanism.levels} levels, {calibration.label}: "
        f"{calibration.bits} bits a coordinate against 32"
    )
    started = time.perf_counter()
    total = jnp.zeros_like(vector)
    sent = 0
    for client in track(range(clients), description="clients send", console=Console(stderr=True), transient=True):
        message = mechanism.message(jax.random.fold_in(jax.random.key(seed), client), bounded)
        total += mechanism.read(message, vector.size)
        sent += len(message)
    error = float(jnp.linalg.norm(total / clients - bounded))
    console.print(
        f"{clients} clients sent {sent / clients:.0f} bytes each (float32: {4 * vector.size}); their mean is within "
        f"{error:.2f} of the true unit vector ({time.perf_counter() - started:.1f} s, seed {seed})"
    )
    top = "".join(chr(ord("a") + letter) for letter in np.argsort(-np.asarray(total))[:5])
    true = "".join(chr(ord("a") + letter) for letter in np.argsort(-np.asarray(vector))[:5])
    console.print(f"the most frequent letters, read off the noisy mean: {top} (in truth: {true})\n")
    console.print("[bold]What the server could learn about one client[/]")
    certificate = so.certify(
        mechanism.event(bounder, so.Relation.REPLACE_ONE, vector.size),
        relation=so.Relation.REPLACE_ONE,
        observer=so.Observer.SERVER,
        rounds=10,
        delta=1e-5,
        units=clients,
    )
    console.print(str(certificate), highlight=False)
    console.print(
        "\n[bold]The calculator[/]: noise for epsilon 5 at delta 1e-5 over 200 rounds of a secret fifth of the clients"
    )
    sampling = so.Poisson(0.2)
    z = so.calibrate_gaussian(epsilon=5.0, delta=1e-5, rounds=200, sampling=sampling)
    console.print(
        f"noise multiplier {z:.4f}, also by\n"
        "sordino account gaussian --epsilon 5 --delta 1e-5 --sampling poisson:0.2 --rounds 200"
    )
