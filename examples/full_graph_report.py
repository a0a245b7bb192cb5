"""What `full_graph.py` notes of its epochs and prints."""

from __future__ import annotations

import dataclasses
from argparse import Namespace
from typing import Any

import torch
from json_file import finite
from torch import Tensor

import horovod_sylvie as hvs


@dataclasses.dataclass
class History:
    """What training leaves behind, an entry for each epoch; the same on every rank but for times.

    Attributes:
        loss: Of all ranks.
        epoch_s: Seconds.
        bytes_sent: Halo rows and their gradients, of all ranks.
        bytes_full_precision: What full precision would have sent.
        stale: Which exchanges gave rows of the epoch before, as "layer.direction".
        drift: What bounded staleness decided by, where it was measured.
        best: The best evaluation on validation so far.
    """

    loss: list[float] = dataclasses.field(default_factory=list)
    epoch_s: list[float] = dataclasses.field(default_factory=list)
    bytes_sent: list[float] = dataclasses.field(default_factory=list)
    bytes_full_precision: list[float] = dataclasses.field(default_factory=list)
    stale: list[list[str]] = dataclasses.field(default_factory=list)
    drift: list[dict[str, float]] = dataclasses.field(default_factory=list)
    best: hvs.Evaluation | None = None

    def add_epoch(
        self, comm: hvs.Communicator, loss: Tensor, report: hvs.EpochReport | None
    ) -> None:
        """Note an epoch. Collective: the ranks' losses and bytes are added up."""
        traffic = hvs.Traffic() if report is None else report.traffic
        own = torch.tensor(
            [loss.item(), traffic.bytes_sent, traffic.bytes_full_precision], dtype=torch.float64
        )
        total_loss, sent, full_precision = comm.allreduce(own, name="epoch").wait().tolist()
        self.loss.append(total_loss)
        self.bytes_sent.append(sent)
        self.bytes_full_precision.append(full_precision)
        layers = () if report is None else report.layers
        self.stale.append([] if report is None else list(report.stale))
        self.drift.append(
            {f"{each.layer}.{each.direction}": each.drift for each in layers if each.drift >= 0}
        )

    def add_evaluation(self, evaluation: hvs.Evaluation) -> None:
        """Keep the best on validation; the newest, where there is nothing to validate on."""
        if self.best is None or not evaluation.val <= self.best.val:
            self.best = evaluation

    @property
    def bits(self) -> list[float | None]:
        """Bits per element in each epoch, headers and all; None where nothing was sent."""
        pairs = zip(self.bytes_sent, self.bytes_full_precision, strict=True)
        return [32 * sent / full if full else None for sent, full in pairs]

    def to_dict(self) -> dict[str, Any]:
        """Return lists and numbers only, for a checkpoint."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(state: dict[str, Any]) -> History:
        """Return what `to_dict` was called on."""
        best = state["best"]
        return History(**state | {"best": None if best is None else hvs.Evaluation(**best)})


def shares_of(evaluation: hvs.Evaluation | None) -> dict[str, float | None]:
    """Return what `RunReport.add_epoch` takes as accuracy; nothing where nothing was measured."""
    if evaluation is None:
        return {}
    kind = "" if evaluation.metric == "accuracy" else f" {evaluation.metric}"
    shares = {f"validation{kind}": evaluation.val, f"test{kind}": evaluation.test}
    return {name: finite(value) for name, value in shares.items()}


def epoch_line(
    args: Namespace,
    history: History,
    evaluation: hvs.Evaluation,
    report: hvs.EpochReport | None,
) -> str:
    """Say how training stands, in one line."""
    epoch = len(history.loss)
    recent = sorted(history.epoch_s[-args.eval_every :])
    parts = [
        f"epoch {epoch:4d}/{args.epochs}",
        f"loss {history.loss[-1]:.4f}",
        f"val {100 * evaluation.val:5.2f} %",
        f"{recent[len(recent) // 2]:.3f} s/epoch",
    ]
    sent, full_precision = sum(history.bytes_sent), sum(history.bytes_full_precision)
    if not sent:
        return "  ".join([*parts, "nothing to send"])
    parts.append(f"all ranks sent {sent / epoch / 2**20:.3f} MiB/epoch")
    parts[-1] += f" ({full_precision / sent:.1f}x less than full precision)"
    if args.staleness != "sync" and report is not None:
        parts.append(f"stale {len(report.stale)}/{len(report.layers)} exchanges")
    if args.bits_policy != "fixed" or args.delta or args.codec == "auto":
        parts.append(f"bits {history.bits[-1]:.1f}")
    return "  ".join(parts)


def last_line(args: Namespace, history: History) -> str:
    """Say how training ended, in one line."""
    best = history.best
    assert best is not None, "the last epoch is evaluated"
    sent, full_precision = sum(history.bytes_sent), sum(history.bytes_full_precision)
    return (
        f"test {best.metric} {100 * best.test:.2f} % at the best validation "
        f"{100 * best.val:.2f} %; "
        f"all ranks sent {sent / args.epochs / 2**20:.3f} MiB per epoch, full precision sends "
        f"{full_precision / args.epochs / 2**20:.3f} MiB"
    )


def summary(
    args: Namespace,
    comm: hvs.Communicator,
    history: History,
    halo: hvs.HaloExchange,
) -> dict[str, Any]:
    """Gather the figures of all ranks."""
    evaluations = [
        entry.bytes_sent / entry.num_exchanges
        for (_, direction), entry in halo.traffic.entries.items()
        if direction == "evaluation"
    ]
    features = halo.traffic.total("features").bytes_sent
    own = torch.tensor([features, sum(evaluations)], dtype=torch.float64)
    for_features, per_evaluation = comm.allreduce(own, name="bytes").wait().tolist()
    assert history.best is not None, "the last epoch is evaluated"
    report = halo.last_epoch
    return vars(args) | {
        "loss": [finite(value) for value in history.loss],
        "metric": history.best.metric,
        "test_accuracy": finite(history.best.test),
        "val_accuracy": finite(history.best.val),
        "epoch_s": history.epoch_s,
        "bytes_sent_per_epoch": sum(history.bytes_sent) / args.epochs,
        "bytes_full_precision_per_epoch": sum(history.bytes_full_precision) / args.epochs,
        "bytes_sent": history.bytes_sent,
        "bits": history.bits,
        "exchanges": [f"{each.layer}.{each.direction}" for each in report.layers] if report else [],
        "stale": history.stale,
        "drift": history.drift,
        "bytes_sent_for_features": for_features,
        "bytes_sent_per_evaluation": per_evaluation,
        "ranks": comm.size,
    }
