"""All cores of a CPU for JAX: each is a device of its own, and the clients of a round are dealt to them.

One device of XLA's uses several cores inside a large matrix product only; most rounds are made of small ones. Whoever
has said how many devices there are is obeyed: JAX_NUM_CPU_DEVICES, jax.config or XLA_FLAGS. Accelerators do not mind.
"""

from __future__ import annotations

import os
import sys

MOST = 32  # devices; compiling and adding up take longer with each
VARIABLE = "JAX_NUM_CPU_DEVICES"

_own_choice = False  # whether the variable was set here


def use_all_cores() -> None:
    """Let JAX see each core that this process may use as a device. Without effect once JAX has begun to compute."""
    global _own_choice
    if VARIABLE in os.environ or "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    cores = min(_cores(), MOST)
    if "jax" not in sys.modules:
        os.environ[VARIABLE], _own_choice = str(cores), True
        return
    import jax

    if jax.config.values["jax_num_cpu_devices"] > 0:
        return
    try:
        jax.config.update("jax_num_cpu_devices", cores)
    except RuntimeError:  # its devices exist: they stay as they are
        return


def share_of_cores(processes: int) -> dict[str, str]:
    """What the environment of one of several processes says of its devices; nothing where somebody else has said it."""
    if VARIABLE in os.environ and not _own_choice:
        return {}
    return {VARIABLE: str(max(1, min(_cores(), MOST) // processes))}


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1
