"""Sordino's models as ONNX graphs.

The input "x" is [records, ...] as in training; the output "scores" are the logits, [records, classes].

A model whose layers use the statistics of the current batch is refused: what it predicts for a record depends on the
other records that it is given, which the user of a graph would not expect. One that computes in bfloat16 is refused
too: the graph's scores would be others.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.errors import InvalidInput, require
from sordino.models._naming import torch_state_dict
from sordino.models.cnn import CNN, SIDE
from sordino.models.mlp import Dense
from sordino.models.model import Array, Params
from sordino.models.resnet20 import GROUPS, Block, ResNet20

OPSET = 17
EPSILON = 1e-5  # of the norm


def onnx_bytes(
    name: str, params: Params, input_shape: tuple[int, ...], about: Mapping[str, str] | None = None
) -> bytes:
    """The graph of a trained model. `about` goes into the file: the names of labels, for instance."""
    try:
        helper = importlib.import_module("onnx.helper")
        onnx = importlib.import_module("onnx")
    except ImportError:
        raise InvalidInput("format", "onnx", "needs the package `onnx`: run `pip install 'sordino[onnx]'`") from None
    plain = "batch" not in name and "bfloat16" not in name
    remedy = "uses statistics of a batch, or bfloat16, which a graph would not give again: export it as safetensors"
    require(plain, "model", name, remedy)
    graph = _Graph(helper, onnx.numpy_helper.from_array, torch_state_dict(name, params))
    scores, classes = _layers_of(params, input_shape)(graph)
    graph.node("Identity", [scores], output="scores")
    kind = onnx.TensorProto.FLOAT
    made = helper.make_graph(
        graph.nodes,
        name.replace(":", "_").replace(",", "_"),
        [helper.make_tensor_value_info("x", kind, ["records", *input_shape])],
        [helper.make_tensor_value_info("scores", kind, ["records", classes])],
        graph.constants,
    )
    model = helper.make_model(made, producer_name="sordino", opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = 8
    helper.set_model_props(model, {"model": name, **(about or {})})
    onnx.checker.check_model(model)
    return model.SerializeToString()


class _Graph:
    """Nodes, and the arrays that they use."""

    def __init__(self, helper: Any, from_array: Callable[[NDArray[Any], str], Any], arrays: Mapping[str, Any]) -> None:
        self._helper, self._from_array, self._arrays = helper, from_array, dict(arrays)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._named: set[str] = set()

    def node(self, kind: str, inputs: list[str], output: str | None = None, **attributes: Any) -> str:
        """Add a node; returns the name of its output."""
        name = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(kind, inputs, [name], **attributes))
        return name

    def parameter(self, name: str) -> str:
        """A trained array."""
        return self.constant(name, self._arrays[name])

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """An array that the graph holds."""
        if name not in self._named:
            self._named.add(name)
            self.constants.append(self._from_array(np.ascontiguousarray(value), name))
        return name

    def shape(self, *lengths: int) -> str:
        """A shape, with 0 for a length that stays and -1 for the rest."""
        return self.constant("shape_" + "_".join(map(str, lengths)), np.array(lengths, np.int64))

    def dense(self, x: str, name: str) -> str:
        """A dense layer: x W^T + b."""
        return self.node("Gemm", [x, self.parameter(f"{name}.weight"), self.parameter(f"{name}.bias")], transB=1)

    def convolution(self, x: str, name: str, *, stride: int = 1, padding: int = 0, bias: bool = False) -> str:
        """A convolution of images [records, channels, height, width]."""
        inputs = [x, self.parameter(f"{name}.weight"), *([self.parameter(f"{name}.bias")] if bias else [])]
        return self.node("Conv", inputs, strides=[stride, stride], pads=[padding] * 4)


def _layers_of(params: Params, input_shape: tuple[int, ...]) -> Callable[[_Graph], tuple[str, int]]:
    """How the graph of a model is built: it returns the name of the scores, and the number of classes."""
    if isinstance(params, Dense):
        return lambda graph: _perceptron(graph, ("linear",), (params,), math.prod(input_shape))
    if isinstance(params, CNN):
        return lambda graph: _cnn(graph, params)
    if isinstance(params, ResNet20):
        return lambda graph: _resnet(graph, params)
    layers = tuple(params)
    names = tuple(f"layers.{place}" for place in range(len(layers)))
    return lambda graph: _perceptron(graph, names, layers, math.prod(input_shape))


def _perceptron(graph: _Graph, names: tuple[str, ...], layers: tuple[Dense, ...], inputs: int) -> tuple[str, int]:
    x = graph.node("Reshape", ["x", graph.shape(-1, inputs)])
    return _dense_layers(graph, x, names), len(layers[-1].bias)


def _dense_layers(graph: _Graph, x: str, names: tuple[str, ...]) -> str:
    for name in names[:-1]:
        x = graph.node("Relu", [graph.dense(x, name)])
    return graph.dense(x, names[-1])


def _cnn(graph: _Graph, params: CNN) -> tuple[str, int]:
    x = graph.node("Reshape", ["x", graph.shape(-1, 1, SIDE, SIDE)])
    for name in ("conv1", "conv2"):
        x = graph.node("MaxPool", [graph.convolution(x, name, bias=True)], kernel_shape=[2, 2], strides=[2, 2])
    x = graph.node("Flatten", [x], axis=1)
    names = tuple(f"dense.{place}" for place in range(len(params.dense)))
    return _dense_layers(graph, x, names), len(params.dense[-1].bias)


def _resnet(graph: _Graph, params: ResNet20) -> tuple[str, int]:
    x = graph.node("Transpose", ["x"], perm=[0, 3, 1, 2])
    x = graph.convolution(x, "conv", padding=1)
    x = graph.node("Relu", [_group_norm(graph, x, "norm", params.norm.scale)])
    for place, block in enumerate(params.blocks):
        x = _block(graph, x, f"blocks.{place}", block)
    x = graph.node("ReduceMean", [x], axes=[2, 3], keepdims=0)
    return graph.dense(x, "linear"), len(params.dense.bias)


def _block(graph: _Graph, x: str, name: str, block: Block) -> str:
    inputs, outputs = block.kernel1.shape[2:]
    stride = 1 if inputs == outputs else 2
    shortcut = x if stride == 1 else _shortcut(graph, x, name, outputs - inputs)
    x = graph.convolution(x, f"{name}.conv1", stride=stride, padding=1)
    x = graph.node("Relu", [_group_norm(graph, x, f"{name}.norm1", block.norm1.scale)])
    x = _group_norm(graph, graph.convolution(x, f"{name}.conv2", padding=1), f"{name}.norm2", block.norm2.scale)
    return graph.node("Relu", [graph.node("Add", [x, shortcut])])


def _shortcut(graph: _Graph, x: str, name: str, extra: int) -> str:
    """Every second pixel, with channels of zeros on both sides."""
    starts, ends = graph.constant("from_0_0", np.zeros(2, np.int64)), graph.constant("to_end", np.full(2, 2**31))
    axes, steps = graph.constant("axes_2_3", np.array([2, 3])), graph.constant("steps_2_2", np.array([2, 2]))
    x = graph.node("Slice", [x, starts, ends, axes, steps])
    before = extra // 2
    pads = graph.constant(f"{name}.pads", np.array([0, before, 0, 0, 0, extra - before, 0, 0], np.int64))
    return graph.node("Pad", [x, pads])


def _group_norm(graph: _Graph, x: str, name: str, scale: Array) -> str:
    """Statistics of a group of channels of one record; then the scale and shift of each channel."""
    channels = len(scale)
    ones, zeros = (
        graph.constant("ones", np.ones(GROUPS, np.float32)),
        graph.constant("zeros", np.zeros(GROUPS, np.float32)),
    )
    shape = graph.node("Shape", [x])
    groups = graph.node("Reshape", [x, graph.shape(0, GROUPS, -1)])
    standard = graph.node("InstanceNormalization", [groups, ones, zeros], epsilon=EPSILON)
    x = graph.node("Reshape", [standard, shape])
    wide = graph.shape(1, channels, 1, 1)
    weight = graph.node("Reshape", [graph.parameter(f"{name}.weight"), wide])
    bias = graph.node("Reshape", [graph.parameter(f"{name}.bias"), wide])
    return graph.node("Add", [graph.node("Mul", [x, weight]), bias])
