"""The file of a model: its arrays, and what is needed to use them. It holds nothing about records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple, Self

import jax
import numpy as np

from sordino.errors import InvalidInput, require
from sordino.keys import key_of
from sordino.models import MODELS, Model, family, get
from sordino.tasks import Predictor
from sordino.types import PyTree

CARD = "sordino"  # one key: the order of several would differ from file to file


class Card(NamedTuple):
    """What a model is."""

    model: str
    input_shape: tuple[int, ...]
    classes: int
    by_name: bool  # whether the name alone makes the model again

    @classmethod
    def of(cls, trained: Predictor) -> Self:
        """The card of a trained model."""
        return cls(trained.model.name, trained.input_shape, trained.classes, trained.model.by_name)


def model_bytes(params: PyTree, card: Card | None = None) -> bytes:
    """Parameters, and what they are the parameters of, as a safetensors file."""
    from safetensors.numpy import save

    leaves = jax.tree_util.tree_leaves_with_path(params)
    metadata = None if card is None else {CARD: json.dumps(card._asdict(), sort_keys=True)}
    return save({_name(path): np.asarray(leaf) for path, leaf in leaves}, metadata)


def load_model(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a saved model, by their path in the parameters."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError, TypeError) as error:
        raise InvalidInput("model", str(path), f"cannot be read ({error}): give a run's model.safetensors") from None


def read_card(path: Path) -> Card | None:
    """What the model of a file is; None for files of earlier versions."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            text = (file.metadata() or {}).get(CARD)
    except (OSError, SafetensorError) as error:
        raise InvalidInput("model", str(path), f"cannot be read ({error}): restore it") from None
    if text is None:
        return None
    held = json.loads(text)
    return Card(held["model"], tuple(held["input_shape"]), held["classes"], bool(held.get("by_name", False)))


def model_of(path: Path, card: Card) -> Model:
    """The model of a card, if it is one of Sordino's."""
    ours = card.by_name and family(card.model) in MODELS
    remedy = "is not one of Sordino's models: give it, so.load_run(folder, model=...)"
    require(ours, f"{path}: model", card.model, remedy)
    return get(card.model, card.input_shape, card.classes)


def params_of(path: Path, model: Model) -> PyTree:
    """The parameters of a file, in the shapes that the model makes."""
    arrays = load_model(path)
    leaves, structure = jax.tree_util.tree_flatten_with_path(jax.eval_shape(model.init, key_of(0)))
    wanted = {_name(place): tuple(leaf.shape) for place, leaf in leaves}
    found = {name: tuple(array.shape) for name, array in arrays.items()}
    remedy = f"does not fit the file, which has {found}: give the model that was trained"
    require(found == wanted, f"{path}: model", model.name, remedy)
    return jax.tree.unflatten(structure, [arrays[_name(place)] for place, _ in leaves])


def _name(path: tuple[object, ...]) -> str:
    return jax.tree_util.keystr(path) or "params"
