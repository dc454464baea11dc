"""The devices of a run as one row: what lies on each of them, and how their sums become one.

They are those of this process or, where a run has several processes, those of all of them. Every process then runs the
same host code on the same numbers, and each puts down what lies on its own devices.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

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
    """The first `devices` devices of this process; those of all processes, where one has not so many."""
    chosen = jax.devices() if beyond_this_process(devices) else jax.local_devices()[:devices]
    return jax.make_mesh((devices,), (AXIS,), axis_types=(AxisType.Auto,), devices=chosen)


def beyond_this_process(devices: int) -> bool:
    """Whether some of these devices belong to other processes."""
    return devices > jax.local_device_count()


def everywhere(tree: PyTree, devices: int) -> PyTree:
    """`tree` on each of the devices: what a program is given lies where it runs. One device has it already."""
    if devices == 1:
        return tree
    placed, apart = NamedSharding(mesh_of(devices), EVERYWHERE), beyond_this_process(devices)

    def put(leaf: object) -> object:
        if apart and not (isinstance(leaf, jax.Array) and leaf.sharding == placed):
            whole = jnp.asarray(leaf)  # device_put would first compare the values of all processes, leaf by leaf
            held = whole if jnp.issubdtype(whole.dtype, jax.dtypes.prng_key) else np.asarray(whole)
            return jax.make_array_from_callback(whole.shape, placed, lambda index: held[index])
        if isinstance(leaf, jax.Array):
            if leaf.sharding == placed:
                return leaf
            if jax.default_backend() == "cpu" and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                leaf = np.asarray(leaf)  # the cores then share its memory, where a copy of a copy would not
        return jax.device_put(leaf, placed)

    return jax.tree.map(put, tree)


def dealt(of_device: Callable[[int], PyTree], devices: int) -> PyTree:
    """What each device holds for itself, `of_device(i)`, as arrays cut along their first axis; all shapes are equal."""
    mesh = mesh_of(devices)
    row = list(mesh.devices.flat)
    own = [place for place, device in enumerate(row) if device.process_index == jax.process_index()]
    parts = [jax.device_put(of_device(place), row[place]) for place in own]
    cut = NamedSharding(mesh, DEALT)

    def joined(*leaves: jax.Array) -> jax.Array:
        shape = (devices * leaves[0].shape[0], *leaves[0].shape[1:])
        return jax.make_array_from_single_device_arrays(shape, cut, list(leaves))

    return jax.tree.map(joined, *parts)


def here(tree: PyTree) -> PyTree:
    """What lies everywhere, on the first device alone."""
    return jax.tree.map(lambda leaf: leaf.addressable_data(0) if isinstance(leaf, jax.Array) else leaf, tree)


def stay_everywhere(tree: PyTree, devices: int) -> PyTree:
    """Inside a program: `tree` lies on each device, and is not cut into parts."""
    if devices == 1:
        return tree
    return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh_of(devices), EVERYWHERE))


def of_owners(values: PyTree) -> PyTree:
    """Inside a program of each device: values that are zero on all devices but one."""

    def of_owner(leaf: jax.Array) -> jax.Array:
        if leaf.dtype == bool:
            return jax.lax.psum(leaf.astype(jnp.int32), AXIS) > 0
        return jax.lax.psum(leaf, AXIS)

    return jax.tree.map(of_owner, values)


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
