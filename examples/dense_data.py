"""Data for `dense.py`: what every rank reads, and the share of it that a rank trains on.

Letters in shapes: N examples, C channels, H and W pixels, T characters of a chunk.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

KINDS = "digits, mnist:FILE.npz, text:FILE, synthetic"
MNIST_ARRAYS = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True)
class Dataset:
    """Examples for training and for testing, the same on every rank.

    Attributes:
        x_train: Images [N, C, H, W], float32, or chunks of text [N, T], int64.
        y_train: Classes [N], or each next character [N, T]; int64.
        x_test: As `x_train`.
        y_test: As `y_train`.
        num_classes: Of images, or distinct characters.
    """

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    num_classes: int

    @property
    def is_text(self) -> bool:
        """Tell whether examples are chunks of text."""
        return not self.x_train.is_floating_point()

    def train_batches(
        self, batch_size: int, epoch: int, *, seed: int, rank: int, size: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield a rank's batches of one epoch: equally many, equally large, on every rank.

        Each epoch has its own order, in which ranks take turns; what is left over at the end, less
        than a batch per rank, sits this epoch out.

        Args:
            batch_size: Examples of a batch, on this rank.
            epoch: Decides the order, together with `seed`.
            seed: The same on every rank.
            rank: This rank.
            size: Number of ranks.
        """
        generator = torch.Generator().manual_seed(1_000_003 * seed + epoch)
        order = torch.randperm(len(self.x_train), generator=generator)[rank::size]
        for batch in range(self.num_batches(batch_size, size)):
            chosen = order[batch * batch_size : (batch + 1) * batch_size]
            yield self.x_train[chosen], self.y_train[chosen]

    def num_batches(self, batch_size: int, size: int) -> int:
        """Return the number of batches of each rank in an epoch."""
        return len(self.x_train) // (batch_size * size)

    def test_batches(
        self, batch_size: int, *, rank: int, size: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield a rank's share of the test examples; not every rank has equally many."""
        inputs, targets = self.x_test[rank::size], self.y_test[rank::size]
        yield from zip(inputs.split(batch_size), targets.split(batch_size), strict=True)


def read_dataset(spec: str, *, chunk: int, as_text: bool) -> Dataset:
    """Read the data that a command line names.

    Args:
        spec: One of `KINDS`.
        chunk: Characters of an example, where the data are text.
        as_text: Whether the model reads text; `synthetic` is then text, too.

    Raises:
        ValueError: If `spec` is no such name, does not suit the model, or its file holds something
            else.
        OSError: If the file cannot be read.
        ImportError: If `digits` is asked for without scikit-learn.
    """
    kind, _, name = spec.partition(":")
    if kind not in {"digits", "mnist", "text", "synthetic"} or bool(name) != (
        kind in {"mnist", "text"}
    ):
        message = f"read_dataset: expected one of {KINDS} for 'spec', got {spec!r}. Name one."
        raise ValueError(message)
    if kind != "synthetic" and as_text != (kind == "text"):
        suitable = "text:FILE or synthetic" if as_text else "digits, mnist:FILE.npz or synthetic"
        message = f"read_dataset: expected {suitable} for 'spec', got {spec!r}. "
        raise ValueError(message + "Choose data that suit the model.")
    if kind == "text":
        return cut_text(Path(name).read_text(encoding="utf-8"), chunk)
    if kind == "mnist":
        return read_mnist(Path(name))
    if kind == "digits":
        return read_digits()
    return cut_text(make_text(), chunk) if as_text else make_images()


def read_mnist(path: Path) -> Dataset:
    """Read grey images from an .npz with the arrays of `MNIST_ARRAYS`: [N, H, W] and [N] each."""
    expected = f"read_mnist: expected arrays {', '.join(MNIST_ARRAYS)} in {str(path)!r}, got "
    with path.open("rb") as file:
        is_archive = zipfile.is_zipfile(file)
    if not is_archive:
        raise ValueError(f"{expected}no .npz. Name another file.")
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files if name in MNIST_ARRAYS}
            others = ", ".join(archive.files)
    except (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{expected}what cannot be read ({error}). Copy it again.") from error
    if len(found) < len(MNIST_ARRAYS):
        raise ValueError(f"{expected}{others}. Name another file.")
    arrays = [found[name] for name in MNIST_ARRAYS]
    for images, classes in (arrays[:2], arrays[2:]):
        if images.ndim != 3 or classes.shape != images.shape[:1]:
            shapes = f"shapes {images.shape} and {classes.shape}"
            raise ValueError(f"{expected}{shapes}. Give images [N, H, W] a class each, [N].")
    return image_dataset(*arrays)


def read_digits() -> Dataset:
    """Return scikit-learn's 1,797 images of 8x8, a fifth of them for testing."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    test, train = np.split(order, [len(order) // 5])
    images, classes = digits.images, digits.target
    return image_dataset(images[train], classes[train], images[test], classes[test])


def image_dataset(
    x_train: np.ndarray, y_train: np.ndarray, x_test: np.ndarray, y_test: np.ndarray
) -> Dataset:
    """Scale grey images [N, H, W] to mean 0 and deviation 1 of the training images."""
    mean, deviation = x_train.mean(), x_train.std()

    def scaled(images: np.ndarray) -> Tensor:
        values = torch.from_numpy((images.astype(np.float32) - mean) / deviation)
        return values.to(torch.float32).unsqueeze(1)  # [N, 1, H, W]

    targets = [torch.from_numpy(classes.astype(np.int64)) for classes in (y_train, y_test)]
    num_classes = int(max(y_train.max(), y_test.max())) + 1
    return Dataset(scaled(x_train), targets[0], scaled(x_test), targets[1], num_classes)


def make_images() -> Dataset:
    """Make 2,500 images of 8x8: noise around ten patterns, always the same ones."""
    generator = np.random.default_rng(0)
    patterns = generator.normal(size=(10, 8, 8))
    classes = generator.integers(10, size=2500)
    images = patterns[classes] + 2 * generator.normal(size=(2500, 8, 8))
    return image_dataset(images[:2000], classes[:2000], images[2000:], classes[2000:])


def make_text() -> str:
    """Make 40,000 characters in which each allows four next ones, always the same text."""
    generator = np.random.default_rng(0)
    followers = generator.integers(26, size=(26, 4))
    chances = generator.choice(4, size=40_000, p=(0.6, 0.2, 0.1, 0.1))
    letters = [0]
    for chance in chances[1:]:
        letters.append(int(followers[letters[-1], chance]))
    return "".join(chr(ord("a") + letter) for letter in letters)


def cut_text(text: str, chunk: int) -> Dataset:
    """Cut a text into chunks of characters; its last tenth is for testing."""
    characters = {character: index for index, character in enumerate(sorted(set(text)))}
    codes = torch.tensor([characters[character] for character in text])
    num_chunks = (len(codes) - 1) // chunk
    if num_chunks < 10:
        message = f"cut_text: expected at least {10 * chunk + 1} characters in 'text', "
        raise ValueError(f"{message}got {len(text)}. Take a longer text or shorter chunks.")
    inputs = codes[: num_chunks * chunk].view(num_chunks, chunk)
    targets = codes[1 : num_chunks * chunk + 1].view(num_chunks, chunk)
    num_train = num_chunks - num_chunks // 10
    parts = inputs[:num_train], targets[:num_train], inputs[num_train:], targets[num_train:]
    return Dataset(*parts, num_classes=len(characters))
