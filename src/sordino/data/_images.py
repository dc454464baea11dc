"""Images: MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100 and the embedded digits.

Pixels are scaled to [0, 1] and, unless `standardize=False`, standardised by the published mean and deviation of the
training images. These constants are part of the public data sets; for private data of your own, use constants that
do not depend on the data.
"""

from __future__ import annotations

import gzip
import tarfile
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sordino.data._files import Source, check, obtain, published
from sordino.data._records import Dataset
from sordino.errors import require

_MNIST = {
    "train-images-idx3-ubyte.gz": "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
_FASHION_MNIST = {
    "train-images-idx3-ubyte.gz": "sha256:3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "train-labels-idx1-ubyte.gz": "sha256:a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "t10k-images-idx3-ubyte.gz": "sha256:346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "t10k-labels-idx1-ubyte.gz": "sha256:67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}
_CIFAR10 = {"cifar-10-binary.tar.gz": "md5:c32a1d4ab5d03f1284b67883e8d87530"}
# The same records as arrays x_train, y_train, x_test, y_test.
_CIFAR10_ARRAYS = {"cifar10.npz": "sha256:a44cc18e4ad961b5158c7da062a6232fb65938b615bf013046199b823b75c43d"}
_CIFAR100 = {"cifar-100-binary.tar.gz": "md5:03b5dce01913d631647c71ecec9e9cb8"}
_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_MNIST_MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/")
MNIST = Source("mnist", (published(_MNIST, *_MNIST_MIRRORS),))
FASHION_MNIST = Source(
    "fashion-mnist", (published(_FASHION_MNIST, "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),)
)
CIFAR10 = Source("cifar10", (published(_CIFAR10, _TORONTO), published(_CIFAR10_ARRAYS)))
CIFAR100 = Source("cifar100", (published(_CIFAR100, _TORONTO),))
# MD5 alone can be forged, so each member of CIFAR-10's archive is checked by its own SHA-1 too.
CIFAR10_MEMBERS = {
    "data_batch_1.bin": "sha1:aadd24acce27caa71bf4b10992e9e7b2d74c2540",
    "data_batch_2.bin": "sha1:c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
    "data_batch_3.bin": "sha1:1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
    "data_batch_4.bin": "sha1:aab85764eb3584312d3c7f65fd2fd016e36a258e",
    "data_batch_5.bin": "sha1:26e2849e66a845b7f1e4614ae70f4889ae604628",
    "test_batch.bin": "sha1:67eb016db431130d61cd03c7ad570b013799c88c",
}
_PIXELS = 3 * 32 * 32


def load_mnist(*, standardize: bool = True) -> Dataset:
    """60,000 + 10,000 handwritten digits (LeCun, Cortes, Burges), x [N, 28, 28, 1]."""
    return _load_idx(MNIST, standardize, mean=0.1307, deviation=0.3081)


def load_fashion_mnist(*, standardize: bool = True) -> Dataset:
    """60,000 + 10,000 pieces of clothing (Xiao, Rasul, Vollgraf 2017), x [N, 28, 28, 1]."""
    return _load_idx(FASHION_MNIST, standardize, mean=0.2860, deviation=0.3530)


def load_cifar10(*, standardize: bool = True, held_out: float = 0.0) -> Dataset:
    """50,000 + 10,000 colour photographs in 10 classes (Krizhevsky 2009), x [N, 32, 32, 3].

    With `held_out`, this share of the training images replaces the published test set; the images are in random order.
    """
    require(0 <= held_out < 1, "held_out", held_out, "must be a share of the training images, below 1")
    (path,) = obtain(CIFAR10)
    raw = _read_cifar10_npz(path) if path.suffix == ".npz" else _read_cifar10_archive(path)
    if held_out:
        x, y = raw[:2]
        kept = round(len(y) * (1 - held_out))
        raw = x[:kept], y[:kept], x[kept:], y[kept:]
    return _image_dataset("cifar10", raw, 10, standardize, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))


def load_cifar100(*, standardize: bool = True) -> Dataset:
    """50,000 + 10,000 colour photographs in 100 (fine) classes (Krizhevsky 2009), x [N, 32, 32, 3]."""
    (path,) = obtain(CIFAR100)
    with tarfile.open(path) as archive:
        train, test = (_member(archive, f"cifar-100-binary/{part}.bin") for part in ("train", "test"))
    raw = (*read_cifar_records(train, label_bytes=2), *read_cifar_records(test, label_bytes=2))
    return _image_dataset("cifar100", raw, 100, standardize, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))


def load_digits(*, standardize: bool = True) -> Dataset:
    """1,797 digits of 8x8 pixels (Alpaydin & Kaynak 1998), embedded: every fifth is a test record.

    13 people wrote them, and nothing tells who wrote which. The natural partition treats each image as a client.
    """
    with (
        resources.files("sordino.data").joinpath("embedded/digits.npz").open("rb") as stream,
        np.load(stream) as arrays,
    ):
        x, y = arrays["x"], arrays["y"]
    test = np.arange(len(y)) % 5 == 4
    raw = (x[~test, ..., None], y[~test], x[test, ..., None], y[test])
    dataset = _image_dataset("digits", raw, 10, standardize, 0.3058, 0.3764, white=16)
    clients = len(dataset.y)
    names = tuple(f"image {number}" for number in range(clients))
    return dataset._replace(client=np.arange(clients, dtype=np.int32), client_names=names)


Pixel = float | tuple[float, ...]  # one value for all channels, or one for each
_Raw = tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]


def _image_dataset(
    name: str, raw: _Raw, classes: int, standardize: bool, mean: Pixel, deviation: Pixel, white: int = 255
) -> Dataset:
    def scaled(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        x = pixels.astype(np.float32)
        x /= white  # in place: CIFAR is 600 MB as float32
        if standardize:
            x -= np.asarray(mean, np.float32)
            x /= np.asarray(deviation, np.float32)
        return x

    x, y, x_test, y_test = raw
    black = tuple(scaled(np.zeros(x.shape[-1:], np.uint8)).tolist())
    return Dataset(name, scaled(x), y.astype(np.int32), scaled(x_test), y_test.astype(np.int32), classes, black=black)


def _load_idx(source: Source, standardize: bool, mean: float, deviation: float) -> Dataset:
    x, y, x_test, y_test = (_read_idx(path) for path in obtain(source))
    return _image_dataset(source.name, (x[..., None], y, x_test[..., None], y_test), 10, standardize, mean, deviation)


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """IDX: two zero bytes, the type (8: bytes), the number of axes, their big-endian lengths, the bytes."""
    with gzip.open(path) as stream:
        contents = stream.read()
    axes = contents[3]
    shape = np.frombuffer(contents, ">i4", axes, offset=4)
    return np.frombuffer(contents, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _read_cifar10_npz(path: Path) -> _Raw:
    with np.load(path) as arrays:
        return arrays["x_train"], arrays["y_train"], arrays["x_test"], arrays["y_test"]


def _read_cifar10_archive(path: Path) -> _Raw:
    batches = []
    with tarfile.open(path) as archive:
        for name, checksum in CIFAR10_MEMBERS.items():
            contents = _member(archive, f"cifar-10-batches-bin/{name}")
            check(contents, checksum, f"{path}/{name}")
            batches.append(contents)
    return (*read_cifar_records(b"".join(batches[:5]), label_bytes=1), *read_cifar_records(batches[5], label_bytes=1))


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    stream = archive.extractfile(name)
    assert stream is not None, f"{name} is not a regular file"
    return stream.read()


def read_cifar_records(contents: bytes, label_bytes: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images [N, 32, 32, 3] and labels; a record is label bytes (the last is used) and 3,072 channel-first pixels."""
    records = np.frombuffer(contents, np.uint8).reshape(-1, label_bytes + _PIXELS)
    images = records[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return images, records[:, label_bytes - 1]
