"""A checkpoint of the full-graph example is whole, or is not there."""

from __future__ import annotations

from pathlib import Path

import full_graph_checkpoint
import pytest
import torch
from full_graph_checkpoint import epoch_of, load_checkpoint, newest_checkpoint, save_checkpoint
from full_graph_report import History
from torch import nn

import horovod_sylvie as hvs


def make_training(weight: float) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(3, 2)
    nn.init.constant_(model.weight, weight)
    return model, torch.optim.SGD(model.parameters(), lr=weight)


def history_of(epochs: int) -> History:
    numbers = [float(epoch) for epoch in range(epochs)]
    return History(
        loss=numbers,
        epoch_s=numbers,
        bytes_sent=numbers,
        bytes_full_precision=numbers,
        stale=[["convs.1.forward"]] * epochs,
        drift=[{"convs.1.forward": 0.5}] * epochs,
        best=hvs.Evaluation(0.1, 0.2, 0.3, 0.4, "accuracy"),
    )


def save(directory: Path, num_ranks: int, epochs: int) -> None:
    def on_rank(comm: hvs.LoopbackCommunicator) -> None:
        model, optimizer = make_training(float(epochs + comm.rank))
        save_checkpoint(directory, comm, model, optimizer, history_of(epochs))

    hvs.run_loopback(num_ranks, on_rank)


def load(directory: Path, num_ranks: int) -> list[tuple[float, float, History]]:
    def on_rank(comm: hvs.LoopbackCommunicator) -> tuple[float, float, History]:
        model, optimizer = make_training(0.5)
        folder = newest_checkpoint(directory)
        assert folder is not None
        history = load_checkpoint(folder, comm, model, optimizer)
        return model.weight[0, 0].item(), optimizer.param_groups[0]["lr"], history

    return list(hvs.run_loopback(num_ranks, on_rank))


def test_each_rank_gets_its_own_file_back(tmp_path: Path) -> None:
    save(tmp_path / "kept", num_ranks=2, epochs=3)
    for rank, (weight, lr, history) in enumerate(load(tmp_path / "kept", num_ranks=2)):
        assert weight == lr == 3 + rank
        assert history == history_of(3)


def test_ranks_without_a_file_get_that_of_rank_0(tmp_path: Path) -> None:
    save(tmp_path, num_ranks=2, epochs=3)
    assert [weight for weight, _, _ in load(tmp_path, num_ranks=4)] == [3, 4, 3, 3]


def test_only_the_newest_checkpoint_stays(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) is None
    (tmp_path / "notes.txt").touch()
    save(tmp_path, num_ranks=2, epochs=9)
    save(tmp_path, num_ranks=2, epochs=10)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["epoch-000010", "notes.txt"]
    newest = newest_checkpoint(tmp_path)
    assert newest is not None and epoch_of(newest) == 10


def test_files_of_a_job_that_was_stopped_are_not_taken_over(tmp_path: Path) -> None:
    unfinished = tmp_path / ".epoch-000003.partial"
    unfinished.mkdir()
    (unfinished / "rank-3.pt").touch()
    assert newest_checkpoint(tmp_path) is None
    save(tmp_path, num_ranks=2, epochs=3)
    files = [each.name for each in (tmp_path / "epoch-000003").iterdir()]
    assert sorted(files) == ["files.json", "rank-0.pt", "rank-1.pt"]
    assert not unfinished.exists()


@pytest.mark.parametrize("name", ["rank-1.pt", "files.json"])
def test_checkpoint_of_which_a_file_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    save(tmp_path, num_ranks=2, epochs=3)
    write = full_graph_checkpoint.write_file

    def fail_for_one(path: Path, raw: bytes) -> str:
        if path.name == name:
            raise OSError("no space left")
        return write(path, raw)

    monkeypatch.setattr(full_graph_checkpoint, "write_file", fail_for_one)
    with pytest.raises((OSError, hvs.PeerError), match="no space left"):
        save(tmp_path, num_ranks=2, epochs=4)
    assert [each.name for each in tmp_path.glob("epoch-*")] == ["epoch-000003"]
    load(tmp_path, num_ranks=2)


def test_generator_goes_on_on_as_many_ranks_and_begins_elsewhere_on_others(tmp_path: Path) -> None:
    torch.manual_seed(5)
    save(tmp_path, num_ranks=1, epochs=3)
    expected = torch.rand(4)
    torch.manual_seed(6)
    at_the_start = torch.rand(4)
    torch.manual_seed(6)
    load(tmp_path, num_ranks=1)
    assert torch.equal(torch.rand(4), expected)
    torch.manual_seed(6)
    load(tmp_path, num_ranks=2)
    drawn = torch.rand(4)
    assert not torch.equal(drawn, expected)
    assert not torch.equal(drawn, at_the_start)
