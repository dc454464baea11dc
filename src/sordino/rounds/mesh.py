"""The devices of this machine as one row: what lies on each of them, and how their sums become one."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from sordino.summation import RunningSum
from sordino.types import PyTree

AXIS = "device"
DEALT, EVERYWHERE = PartitionSpec(AXIS), PartitionSpec()


@functools.lru_cache(maxsize=8)
def mesh_of(devices: int) -> Mesh:
    """The first `devices` devices of this process."""
    return jax.make_mesh((devices,), (AXIS,), axis_types=(AxisType.Auto,), devices=jax.local_devices()[:devices])


def everywhere(tree: PyTree, devices: int) -> PyTree:
    """`tree` on each of the devices: what a program is given lies where it runs. One device has it already."""
    if devices == 1:
        return tree
    placed = NamedSharding(mesh_of(devices), EVERYWHERE)

    def put(leaf: object) -> object:
        if isinstance(leaf, jax.Array):
            if leaf.sharding == placed:
                return leaf
            if jax.default_backend() == "cpu" and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                leaf = np.asarray(leaf)  # the cores then share its memory, where a copy of a copy would not
        return jax.device_put(leaf, placed)

    return jax.tree.map(put, tree)


def here(tree: PyTree) -> PyTree:
    """What lies everywhere, on the first device alone."""
    return jax.tree.map(lambda leaf: leaf.addressable_data(0) if isinstance(leaf, jax.Array) else leaf, tree)


def stay_everywhere(tree: PyTree, devices: int) -> PyTree:
    """Inside a program: `tree` lies on each device, and is not cut into parts."""
    if devices == 1:
        return tree
    return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh_of(devices), EVERYWHERE))


def sum_over_devices(own: RunningSum, devices: int) -> RunningSum:
    """Inside a program of each device: the sum of all, the same bits on each.

    A device adds up its part of every vector and hands the result round, so that none holds the vectors of all.
    """

    def deal(leaf: jax.Array) -> jax.Array:
        flat = jnp.ravel(leaf)
        parts = jnp.pad(flat, (0, -flat.size % devices)).reshape(devices, -1)
        return jax.lax.all_to_all(parts, AXIS, split_axis=0, concat_axis=0)

    def gather(part: jax.Array, leaf: jax.Array) -> jax.Array:
        whole = jax.lax.all_gather(part, AXIS, tiled=True)
        return whole[: leaf.size].reshape(leaf.shape)

    joined = jax.tree.map(deal, own).joined()
    return jax.tree.map(gather, joined, own)
