"""Models: a loss over a batch of records, and its first parameters. One model a file, or any loss of your own.

`get("mlp:300,300", (784,), 10)` finds a model by name. Options follow the name after a colon: hidden sizes and the norm
in `mlp:300,300,batch`, the norm and the number format in `resnet20:batch,bfloat16`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import takewhile

from sordino.errors import InvalidInput, require
from sordino.models._precision import PRECISIONS as PRECISIONS
from sordino.models._precision import in_precision as in_precision
from sordino.models.cnn import cnn as cnn
from sordino.models.cnn import cnn_small as cnn_small
from sordino.models.linear import linear as linear
from sordino.models.linear import moreau as moreau
from sordino.models.logistic import logistic as logistic
from sordino.models.mlp import mlp as mlp
from sordino.models.model import Batch as Batch
from sordino.models.model import FlatLoss as FlatLoss
from sordino.models.model import FlatPredict as FlatPredict
from sordino.models.model import Linear as Linear
from sordino.models.model import Model as Model
from sordino.models.model import Params as Params
from sordino.models.model import classifier as classifier
from sordino.models.model import cross_entropy as cross_entropy
from sordino.models.model import flat as flat
from sordino.models.model import from_loss as from_loss
from sordino.models.model import linear_of as linear_of
from sordino.models.model import shapes_of as shapes_of
from sordino.models.model import weighted_mean as weighted_mean
from sordino.models.pytorch import from_torch as from_torch
from sordino.models.resnet20 import resnet20 as resnet20

MODELS: dict[str, Callable[..., Model]] = {
    make.__name__.replace("_", "-"): make for make in (cnn, cnn_small, logistic, mlp, resnet20)
}


def family(name: str) -> str:
    """The word of a model's name that stands before its options, as MODELS has it."""
    return name.partition(":")[0].strip().lower().replace("_", "-")


def get(name: str, input_shape: tuple[int, ...], classes: int, **options: object) -> Model:
    """Return the model called `name`, for records of `input_shape` and labels 0, ..., classes - 1."""
    _, colon, sizes = name.partition(":")
    word = family(name)
    require(word in MODELS, "model", name, "use one of " + ", ".join(MODELS) + " (mlp with its sizes: 'mlp:300,300')")
    shape = tuple(input_shape)
    require(bool(shape) and all(axis > 0 for axis in shape), "input_shape", shape, "give the shape of one record")
    require(classes > 1, "classes", classes, "give the number of labels, 2 or more")
    known = [*inspect.signature(MODELS[word]).parameters][2:]
    if colon:
        for option, value in _spelled(name, known, sizes).items():
            require(option not in options, option, options.get(option), f"the name {name!r} gives it already")
            options = {**options, option: value}
    for option in options:
        takes = "its options are " + ", ".join(known) if known else "it has no options"
        require(option in known, f"option of {word}", option, takes)
    return MODELS[word](shape, classes, **options)._replace(by_name=True)


def _spelled(name: str, known: list[str], text: str) -> dict[str, object]:
    """The options after the colon of a model's name, in their order; all leading numbers are hidden sizes."""
    words = [word.strip() for word in text.split(",")]
    if not known:
        raise InvalidInput("model", name, "it has no options: leave out the colon and the text after it")
    found: dict[str, object] = {}
    if "hidden" in known:
        sizes = list(takewhile(lambda word: word.removeprefix("-").isdecimal(), words))
        found["hidden"] = tuple(int(size) for size in sizes)
        words, known = words[len(sizes) :], [option for option in known if option != "hidden"]
        require(bool(sizes), "model", name, "write the hidden sizes as in 'mlp:300,300'")
    require(len(words) <= len(known), "model", name, "at most " + ", ".join(known) + " may follow the colon")
    return found | dict(zip(known, words, strict=False))
