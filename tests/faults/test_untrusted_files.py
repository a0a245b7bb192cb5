"""A program in a file is not run where the file is read, even if all hashes are right."""

from __future__ import annotations

import ast
import hashlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dense_data import read_dataset

import horovod_sylvie as hvs
from horovod_sylvie.partition.layout import hash_file, hash_header, hash_meta
from tests.faults import saved_training as training

ROOT = Path(__file__).resolve().parents[2]


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def in_partition(folder: Path, payload: Payload) -> Callable[[], object]:
    """Put the payload into an array of rank 0, and make all hashes right again."""
    hvs.partition_graph("synthetic:nodes=60,degree=4,features=2", folder / "p", 2, method="random")
    own = folder / "p" / "rank-00000"
    array = np.array([payload], dtype=object)
    np.save(own / "y.npy", array, allow_pickle=True)
    meta = json.loads((own / "meta.json").read_text())
    meta["arrays"]["y"] = {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "bytes": (own / "y.npy").stat().st_size,
        "blake2b": hash_file(own / "y.npy"),
    }
    header = json.loads((folder / "p" / "partition.json").read_text())
    header["ranks"][0] = hash_meta(meta)
    meta["digest"] = header["digest"] = hash_header(header)
    (own / "meta.json").write_text(json.dumps(meta))
    (folder / "p" / "partition.json").write_text(json.dumps(header))
    return lambda: hvs.load_partition(folder / "p", 0, 2)


def in_checkpoint(folder: Path, payload: Payload) -> Callable[[], object]:
    """Put the payload into the file of rank 1, and its hash into the list."""
    training.save(folder)
    (own,) = folder.glob("epoch-*/rank-1.pt")
    torch.save(torch.load(own, weights_only=True) | {"model": payload}, own)
    hashes = json.loads((own.parent / "files.json").read_text())
    hashes["rank-1.pt"] = hashlib.blake2b(own.read_bytes(), digest_size=16).hexdigest()
    (own.parent / "files.json").write_text(json.dumps(hashes))
    return lambda: training.load(folder)


def in_pickled_checkpoint(folder: Path, payload: Payload) -> Callable[[], object]:
    """Put a bare pickle in place of the file of rank 1."""
    load = in_checkpoint(folder, payload)
    (own,) = folder.glob("epoch-*/rank-1.pt")
    own.write_bytes(pickle.dumps(payload))
    return load


def in_npz(folder: Path, payload: Payload) -> Callable[[], object]:
    np.savez(folder / "graph.npz", num_nodes=np.array([payload], dtype=object))
    return lambda: hvs.partition_graph(folder / "graph.npz", folder / "p", 2)


def in_saved_data(folder: Path, payload: Payload) -> Callable[[], object]:
    torch.save({"x": payload}, folder / "data.pt")
    return lambda: hvs.partition_graph(folder / "data.pt", folder / "p", 2)


def in_images(folder: Path, payload: Payload) -> Callable[[], object]:
    array = np.array([payload], dtype=object)
    names = ("x_train", "y_train", "x_test", "y_test")
    np.savez(folder / "mnist.npz", **dict.fromkeys(names, array))
    return lambda: read_dataset(f"mnist:{folder / 'mnist.npz'}", chunk=8, as_text=False)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (in_partition, r"rank-00000/y\.npy: it is no \.npy array \(.*allow_pickle=False"),
        (in_checkpoint, r"rank-1\.pt: it holds more than tensors, numbers and texts"),
        (in_pickled_checkpoint, r"rank-1\.pt: it is not what files\.json has the hash of"),
        (in_npz, r"graph\.npz: .*num_nodes cannot be read \(.*object arrays are refused"),
        (in_saved_data, r"data\.pt: expected a PyG Data that can be read safely"),
        (in_images, r"mnist\.npz', got what cannot be read \(Object arrays cannot be"),
    ],
)
def test_program_in_a_file_is_refused_and_not_run(
    tmp_path: Path, place: Callable[[Path, Payload], Callable[[], object]], message: str
) -> None:
    marker = tmp_path / "marker"
    load = place(tmp_path, Payload(marker))
    with pytest.raises((RuntimeError, ValueError), match=message):
        load()
    assert not marker.exists()


def test_payload_does_run_where_it_is_unpickled(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Payload(tmp_path / "marker")))
    assert (tmp_path / "marker").exists()


def unsafe_loads(source: str) -> list[str]:
    """Return the calls in a source that unpickle whatever a file holds."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            call = ast.unparse(node)
            name = ast.unparse(node.func)
            is_torch = name == "torch.load" and "weights_only=True" not in call
            is_pickle = name.split(".")[0] in {"pickle", "joblib", "dill", "cloudpickle"}
            if is_torch or is_pickle or "allow_pickle=True" in call or "weights_only=False" in call:
                found.append(call)
    return found


def test_no_module_unpickles_what_it_reads() -> None:
    unsafe = {
        path.relative_to(ROOT).as_posix(): calls
        for folder in ("horovod_sylvie", "examples", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (calls := unsafe_loads(path.read_text()))
    }
    assert not unsafe


@pytest.mark.parametrize(
    ("source", "is_unsafe"),
    [
        ("torch.load(path)", True),
        ("torch.load(path, weights_only=False)", True),
        ("torch.load(path, weights_only=True)", False),
        ("numpy.load(path, allow_pickle=True)", True),
        ("numpy.load(path)", False),
        ("pickle.loads(raw)", True),
        ("json.loads(raw)", False),
    ],
)
def test_rule_for_loads_on_a_known_one_decides_right(source: str, is_unsafe: bool) -> None:
    assert bool(unsafe_loads(source)) is is_unsafe
