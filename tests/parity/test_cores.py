"""Each core of a CPU is a device, unless somebody has said otherwise; and rounds on several are those on one."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sordino.rounds.mesh import DEALT, EVERYWHERE, everywhere, here, mesh_of, sum_over_devices
from sordino.summation import RunningSum
from tests.toys import on_four_devices

TWO_CORES = "import os; os.sched_getaffinity = lambda process: {0, 1}\n"
COUNT = "import jax; print(jax.local_device_count())"


def printed(script: str, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS")}
    done = subprocess.run(
        [sys.executable, "-c", TWO_CORES + script],
        env=clean | {"JAX_PLATFORMS": "cpu"} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("script", "environment", "devices"),
    [
        ("import sordino\n", {}, "2"),
        ("import jax, sordino\n", {}, "2"),
        ("import sordino\n", {"JAX_NUM_CPU_DEVICES": "3"}, "3"),
        ("import sordino\n", {"XLA_FLAGS": "--xla_force_host_platform_device_count=3"}, "3"),
        ("import jax; jax.config.update('jax_num_cpu_devices', 5)\nimport sordino\n", {}, "5"),
        ("import jax; jax.devices()\nimport sordino\n", {}, "1"),
    ],
    ids=["first", "after jax", "variable", "flag", "setting", "devices that exist"],
)
def test_each_core_is_a_device_unless_somebody_said_otherwise(script, environment, devices):
    assert printed(script + COUNT, **environment) == devices


def summed() -> list[Any]:
    """Sums over four devices, on each of them, and what was summed; the lengths are no multiples of four."""
    rng = np.random.default_rng(5)
    terms = {
        "vector": rng.standard_normal((4, 7)),
        "count": rng.integers(0, 9, 4),
        "one": rng.standard_normal((4, 1, 1)),
    }
    terms = jax.tree.map(lambda leaf: leaf.astype(np.float32 if leaf.dtype == float else np.int32), terms)

    def on_device(own: Any) -> Any:
        total = sum_over_devices(RunningSum.of(jax.tree.map(lambda leaf: leaf[0], own)), 4).value()
        return jax.tree.map(lambda leaf: leaf[None], total)

    mesh = mesh_of(4)
    each = jax.jit(jax.shard_map(on_device, mesh=mesh, in_specs=DEALT, out_specs=DEALT, check_vma=False))(terms)
    return [jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), tree) for tree in (each, terms)]


def placed() -> list[Any]:
    """Where things lie that were put everywhere: how many devices hold a whole vector, and what the first one holds."""
    tree = everywhere({"x": jnp.arange(3.0), "key": jax.random.key(1)}, 4)
    assert everywhere(tree, 4)["x"] is tree["x"]
    assert tree["x"].sharding.spec == EVERYWHERE
    only = here(tree)
    return [len(tree["x"].addressable_shards), only["x"].tolist(), jax.random.key_data(only["key"]).tolist()]


@pytest.mark.slow
def test_devices_hold_one_sum():
    (each, terms), (copies, x, key) = on_four_devices("tests.parity.test_cores", "[module.summed(), module.placed()]")
    for name, of_devices in each.items():
        own = np.asarray(terms[name])
        expected = own.astype(np.float64).sum(axis=0) if name != "count" else own.sum()
        for of_one in of_devices:
            assert of_one == of_devices[0]  # the same bits
        np.testing.assert_allclose(of_devices[0], expected, rtol=1e-6)
    assert (copies, x, key) == (4, [0.0, 1.0, 2.0], np.asarray(jax.random.key_data(jax.random.key(1))).tolist())


def test_one_device_keeps_what_it_has():
    x = jnp.arange(3.0)
    assert everywhere(x, 1) is x
    assert here((np.arange(2),))[0].tolist() == [0, 1]
