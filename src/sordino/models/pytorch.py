"""A PyTorch module as a model: torchax translates its forward pass to JAX.

Training happens in JAX, under `vmap` and `jit`, as for every other model; PyTorch takes part only while JAX traces the
forward pass. Parameters keep the module's names and layouts, so `load_state_dict` takes them back.
"""

from __future__ import annotations

import copy
import importlib
import os
from collections.abc import Callable
from typing import Any

from sordino.errors import InvalidInput, require
from sordino.models.model import Array, Batch, Model, Params, cross_entropy, from_loss, weighted_mean
from sordino.types import Key


def from_torch(
    module: Any, losses: Callable[[Array, Array], Array] = cross_entropy, name: str = "pytorch-module"
) -> Model:
    """Return the model of a `torch.nn.Module`; needs PyTorch and torchax, the extra `torch`.

    Every run starts from the weights that the module has now, whatever its seed: they must not come from private data.
    What does not require a gradient stays as it is, and so do buffers, as the averages of a batch norm.

    Args:
      module: in evaluation mode, `module.eval()`: there is no dropout, and batch norms use the averages that they have.
      losses: (outputs, labels) -> the loss of each record [n], a function of JAX arrays.
      name: of the model, in certificates and reports.
    """
    torch, torchax = _torchax()
    require(isinstance(module, torch.nn.Module), "module", type(module).__name__, "pass a torch.nn.Module")
    remedy = "call module.eval() first: there is no dropout here, and batch norms use the averages that they have"
    require(not any(each.training for each in module.modules()), "module", "in training mode", remedy)
    require(callable(losses), "losses", losses, "pass a function of outputs and labels")
    held = copy.deepcopy(module)  # later changes to the module do not reach the model
    arrays, apply = torchax.extract_jax(held)
    trained = [key for key, value in held.named_parameters() if value.requires_grad and key in arrays]
    require(bool(trained), "module", type(module).__name__, "has no parameter that requires a gradient")
    for key in trained:
        kind = held.get_parameter(key).dtype
        require(kind == torch.float32, f"parameter {key}", str(kind), "use float32 parameters: module.float()")
    start = {key: arrays[key] for key in trained}
    fixed = {key: value for key, value in arrays.items() if key not in start}

    def init(key: Key) -> Params:
        del key  # the module's own weights
        return dict(start)

    def predict(params: Params, x: Array) -> Array:
        try:
            outputs: Array = apply({**fixed, **params}, (x,))
        except Exception as error:  # whatever a module raises
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            remedy = f"its forward pass fails on records [records, ...] of this shape ({reason}): reshape them there"
            raise InvalidInput("module", f"shape {x.shape}", remedy) from error
        return outputs

    def loss(params: Params, batch: Batch) -> Array:
        return weighted_mean(losses(predict(params, batch.x), batch.y), batch.weight)

    return from_loss(init, loss, predict if losses is cross_entropy else None, name)


def _torchax() -> tuple[Any, Any]:
    """The modules `torch` and `torchax`."""
    os.environ.setdefault("ENABLE_RUNTIME_UPTIME_TELEMETRY", "0")  # torchax would switch it on
    try:
        return importlib.import_module("torch"), importlib.import_module("torchax")
    except ImportError as error:
        raise InvalidInput("package", str(error.name), "is not installed: run `pip install 'sordino[torch]'`") from None
    except AttributeError as error:  # operations that this PyTorch no longer has
        remedy = f"does not fit this PyTorch ({error}): run `pip install 'sordino[torch]'`"
        raise InvalidInput("package", "torchax", remedy) from None
