"""Parameters by readable names, and by PyTorch's names and layouts.

`parameters_by_name` works for every model: a path in the parameters becomes "blocks.0.norm1.scale". `torch_state_dict`
knows Sordino's models; docs/models.md has the PyTorch modules that take its arrays:

    a convolution  kernel [height, width, inputs, outputs]  -> weight [outputs, inputs, height, width]
    a norm         scale, shift                             -> weight, bias
    a dense layer  weight [outputs, inputs], bias           -> the same
"""

from __future__ import annotations

import jax
import numpy as np
from numpy.typing import NDArray

from sordino.errors import InvalidInput
from sordino.models._normalization import Norm
from sordino.models.cnn import CNN
from sordino.models.mlp import Dense, Normed
from sordino.models.model import Array, Params
from sordino.models.resnet20 import ResNet20

Arrays = dict[str, NDArray[np.float32]]


def parameters_by_name(params: Params) -> Arrays:
    """Every array of the parameters by its path, with dots: "dense.0.weight"."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {
        jax.tree_util.keystr(path, simple=True, separator=".") or "params": np.asarray(leaf) for path, leaf in leaves
    }


def torch_state_dict(name: str, params: Params) -> Arrays:
    """The parameters of one of Sordino's models with PyTorch's names and layouts."""
    if isinstance(params, Dense):
        return _dense("linear", params)
    if isinstance(params, CNN):
        arrays = _convolution("conv1", params.first.kernel) | {"conv1.bias": np.asarray(params.first.bias)}
        arrays |= _convolution("conv2", params.second.kernel) | {"conv2.bias": np.asarray(params.second.bias)}
        for place, layer in enumerate(params.dense):
            arrays |= _dense(f"dense.{place}", layer)
        return arrays
    if isinstance(params, ResNet20):
        return _resnet(params)
    if isinstance(params, tuple) and params and all(isinstance(layer, Dense | Normed) for layer in params):
        arrays = {}
        for place, layer in enumerate(params):
            if isinstance(layer, Normed):
                arrays[f"layers.{place}.weight"] = np.asarray(layer.weight)
                arrays |= _norm(f"norms.{place}", layer.norm)
            else:
                arrays |= _dense(f"layers.{place}", layer)
        return arrays
    raise InvalidInput("model", name, "is not one of Sordino's: export it as safetensors, and rename its arrays")


def _resnet(params: ResNet20) -> Arrays:
    arrays = _convolution("conv", params.kernel) | _norm("norm", params.norm)
    for place, block in enumerate(params.blocks):
        arrays |= _convolution(f"blocks.{place}.conv1", block.kernel1) | _norm(f"blocks.{place}.norm1", block.norm1)
        arrays |= _convolution(f"blocks.{place}.conv2", block.kernel2) | _norm(f"blocks.{place}.norm2", block.norm2)
    return arrays | _dense("linear", params.dense)


def _dense(name: str, layer: Dense) -> Arrays:
    return {f"{name}.weight": np.asarray(layer.weight), f"{name}.bias": np.asarray(layer.bias)}


def _convolution(name: str, kernel: Array) -> Arrays:
    return {f"{name}.weight": np.ascontiguousarray(np.transpose(np.asarray(kernel), (3, 2, 0, 1)))}


def _norm(name: str, norm: Norm) -> Arrays:
    return {f"{name}.weight": np.asarray(norm.scale), f"{name}.bias": np.asarray(norm.shift)}
