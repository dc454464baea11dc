"""Features of images: the outputs of a public network, on which a linear model is trained.

The network was trained on other, public images, and its projection and scale are constants: nothing here is computed
from the records.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sordino.data._files import Source, obtain, published
from sordino.data._records import Dataset

_CIFAR10 = {"features.npz": "sha256:95a9bbd788944c4e1c91c43c7f5d1dd3c85e0b025ebb31f1cd94cc7f0a355be0"}
CIFAR10_FEATURES = Source("cifar10-features", (published(_CIFAR10),))  # nobody publishes it: it can only be found


def load_cifar10_features() -> Dataset:
    """The images of CIFAR-10 as 512 features of an EfficientNet-Lite0 that was trained on ImageNet, x [N, 512].

    Images are scaled to 224 x 224 and pixels to [-1, 1]. The 1,280 pooled outputs are multiplied by a fixed
    1,280 x 512 matrix with orthonormal columns and kept as bytes with one scale.
    """
    (path,) = obtain(CIFAR10_FEATURES)
    with np.load(path) as arrays:
        scale = np.float32(arrays["scale"])
        x, x_test = (_unpacked(arrays[part], scale) for part in ("x_train", "x_test"))
        y, y_test = (arrays[part].astype(np.int32) for part in ("y_train", "y_test"))
    return Dataset("cifar10-features", x, y, x_test, y_test, classes=10)


def _unpacked(x: NDArray[np.int8], scale: np.float32) -> NDArray[np.float32]:
    return x.astype(np.float32) * scale
