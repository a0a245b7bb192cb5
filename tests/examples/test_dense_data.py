"""Data of the dense example: what ranks share out, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from examples.dense_data import Dataset, cut_text, image_dataset, read_dataset


def numbered(num_train: int, num_test: int = 7) -> Dataset:
    """Return images whose only pixel, and class, is their number."""
    train, test = torch.arange(num_train), torch.arange(num_test)
    images = [numbers.float().view(-1, 1, 1, 1) for numbers in (train, test)]
    return Dataset(images[0], train, images[1], test, num_classes=num_train)


def epoch_of(data: Dataset, epoch: int, rank: int, seed: int = 0) -> list[list[int]]:
    batches = data.train_batches(4, epoch, seed=seed, rank=rank, size=3)
    return [targets.tolist() for _, targets in batches]


def test_train_batches_of_all_ranks_share_the_examples_out() -> None:
    data = numbered(29)  # two batches of four on three ranks, five examples left over
    ranks = [epoch_of(data, 1, rank) for rank in range(3)]
    assert [[len(batch) for batch in batches] for batches in ranks] == [[4, 4]] * 3
    seen = [number for batches in ranks for batch in batches for number in batch]
    assert len(seen) == len(set(seen)) == 24
    assert data.num_batches(4, 3) == 2


def test_train_batches_keep_inputs_with_their_targets() -> None:
    for inputs, targets in numbered(29).train_batches(4, 1, seed=0, rank=1, size=3):
        assert inputs.shape == (4, 1, 1, 1)
        assert inputs.flatten().tolist() == targets.tolist()


def test_train_batches_have_an_order_for_each_seed_and_epoch() -> None:
    data = numbered(29)
    assert epoch_of(data, 1, 0) == epoch_of(data, 1, 0)
    assert epoch_of(data, 1, 0) != epoch_of(data, 2, 0)
    assert epoch_of(data, 1, 0, seed=0) != epoch_of(data, 1, 0, seed=1)


@pytest.mark.parametrize("size", [1, 3, 9])
def test_test_batches_of_all_ranks_are_the_test_examples(size: int) -> None:
    data = numbered(3, num_test=7)
    batches = [
        batch for rank in range(size) for batch in data.test_batches(2, rank=rank, size=size)
    ]
    assert sorted(int(number) for _, targets in batches for number in targets) == list(range(7))
    assert all(inputs.flatten().tolist() == targets.tolist() for inputs, targets in batches)


def test_images_are_scaled_by_those_for_training() -> None:
    generator = np.random.default_rng(0)
    images = generator.integers(256, size=(40, 5, 6)).astype(np.uint8)
    classes = generator.integers(3, size=40)
    data = image_dataset(images[:30], classes[:30], images[30:], classes[30:])
    assert data.x_train.shape == (30, 1, 5, 6)
    assert data.x_train.dtype == torch.float32
    assert not data.is_text
    assert data.num_classes == 3
    assert data.x_train.mean().item() == pytest.approx(0, abs=1e-5)
    assert data.x_train.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    scale = images[:30].std()
    torch.testing.assert_close(
        data.x_test[:, 0] * scale + images[:30].mean(),
        torch.tensor(images[30:]).to(torch.float64),
        check_dtype=False,
        rtol=1e-4,
        atol=1e-3,
    )


def test_text_is_cut_so_that_targets_are_the_next_characters() -> None:
    text = "to be or not to be, that is the question: whether"
    data = cut_text(text, chunk=4)
    letters = sorted(set(text))
    inputs = torch.cat([data.x_train, data.x_test]).flatten()
    targets = torch.cat([data.y_train, data.y_test]).flatten()
    assert data.is_text
    assert data.num_classes == len(letters)
    assert len(data.x_test) == 1
    assert "".join(letters[code] for code in inputs) == text[:48]
    assert "".join(letters[code] for code in targets) == text[1:49]


def test_digits_are_split_in_the_same_way_each_time() -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    first, again = (read_dataset("digits", chunk=8, as_text=False) for _ in range(2))
    assert len(first.x_train) + len(first.x_test) == 1797
    assert len(first.x_test) == 359
    assert torch.equal(first.x_test, again.x_test)
    assert torch.equal(first.y_train, again.y_train)
    assert set(first.y_test.tolist()) == set(range(10))


@pytest.mark.parametrize("as_text", [False, True])
def test_synthetic_data_are_the_same_each_time(as_text: bool) -> None:
    first, again = (read_dataset("synthetic", chunk=16, as_text=as_text) for _ in range(2))
    assert first.is_text is as_text
    assert torch.equal(first.x_train, again.x_train)
    assert torch.equal(first.y_test, again.y_test)


@pytest.mark.parametrize(
    ("spec", "as_text", "message"),
    [
        ("imagenet", False, "expected one of digits, .* got 'imagenet'"),
        ("mnist", False, "expected one of .* got 'mnist'"),
        ("digits:file", False, "expected one of .* got 'digits:file'"),
        ("digits", True, "expected text:FILE or synthetic .* got 'digits'"),
        ("text:{folder}/short.txt", False, "expected digits, mnist:FILE.npz or synthetic"),
        ("text:{folder}/short.txt", True, "expected at least 41 characters in 'text', got 5"),
        ("mnist:{folder}/short.txt", False, r"expected arrays x_train, .*short.txt', got no \.npz"),
        ("mnist:{folder}/other.npz", False, r"expected arrays x_train, .* got x, y\. Name"),
        ("mnist:{folder}/flat.npz", False, r"got shapes \(3, 4\) and \(3,\)"),
        ("mnist:{folder}/damaged.npz", False, r"damaged\.npz', got what cannot be read \(Bad CRC"),
    ],
)
def test_read_dataset_on_unsuitable_data_says_what_suits(
    tmp_path: Path, spec: str, as_text: bool, message: str
) -> None:
    (tmp_path / "short.txt").write_text("short")
    np.savez(tmp_path / "other.npz", x=np.zeros(3), y=np.zeros(3))
    flat = {"x_train": np.zeros((3, 4)), "x_test": np.zeros((3, 4))}
    np.savez(tmp_path / "flat.npz", **flat, y_train=np.zeros(3), y_test=np.zeros(3))
    changed = bytearray((tmp_path / "flat.npz").read_bytes())
    changed[changed.index(b"NUMPY") + 130] ^= 1
    (tmp_path / "damaged.npz").write_bytes(changed)
    with pytest.raises(ValueError, match=message):
        read_dataset(spec.format(folder=tmp_path), chunk=4, as_text=as_text)


@pytest.mark.parametrize("kind", ["mnist", "text"])
def test_read_dataset_without_its_file_names_the_file(tmp_path: Path, kind: str) -> None:
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / "absent"))):
        read_dataset(f"{kind}:{tmp_path / 'absent'}", chunk=4, as_text=kind == "text")
