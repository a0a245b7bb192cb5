"""What `accuracy.py` trains: graphs, models, and the ways in which halo rows travel."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

FULL: Final = "full"
ONE_BIT: Final = "one-bit"
BUDGET: Final = "budget"

COMMON: Final = "--norm layer --dropout 0.5 --lr 0.005 --eval-every 5"
GRAPHS: Final = MappingProxyType(
    {
        "amazon_photo": "--hidden 64 --epochs 160 --lr 0.01 --split 1 --feature-norm l2",
        "coauthor_cs": "--hidden 64 --epochs 30 --lr 0.01 --split 1",
        "debian_deps": "--hidden 64 --epochs 60 --lr 0.02 --dropout 0.2",
        "cora": "--hidden 64 --epochs 60 --feature-norm l2 --weight-decay 0.0005",
        "citeseer": "--hidden 64 --epochs 60 --feature-norm l2 --weight-decay 0.0005",
    }
)
# The others have few training and test nodes: their noise hides what is measured here
DEFAULT_GRAPHS: Final = ("amazon_photo", "coauthor_cs", "debian_deps")
MODELS: Final = MappingProxyType(
    {
        "sage": "--model sage --layers 3",
        "gcn": "--model gcn --layers 3",
        "gat": "--model gat --layers 3",
        "jknet": "--model jknet --layers 8 --hidden 64",
    }
)
MODES: Final = MappingProxyType(
    {
        FULL: "--codec full",
        ONE_BIT: "--codec 1",
        "centroid": "--codec 1 --code centroid",
        "pipelined": "--codec 1 --staleness pipelined",
        "pipelined-5": "--codec 1 --staleness pipelined --sync-every 5",
        "bounded": "--codec 1 --staleness bounded",
        BUDGET: "--codec 1 --bits-policy budget",
        "degree": "--codec 1 --bits-policy degree",
        "delta": "--codec 1 --code centroid --delta",
    }
)
NAMES: Final = MappingProxyType(
    {
        FULL: "full precision",
        ONE_BIT: "one bit",
        "centroid": "one bit, centroid",
        "pipelined": "one bit, pipelined",
        "pipelined-5": "one bit, pipelined, every 5th epoch waits",
        "bounded": "one bit, stale where drift is at most 0.1",
        BUDGET: "bits by budget, twice the bytes of one bit",
        "degree": "bits by degree",
        "delta": "changes, one bit, centroid",
    }
)


@dataclass(frozen=True)
class Setting:
    """What modes are compared in.

    Attributes:
        graph: One of `GRAPHS`.
        model: One of `MODELS`.
        num_ranks: How many ranks share the graph.
    """

    graph: str
    model: str
    num_ranks: int


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes:
        setting: Of what.
        mode: One of `MODES`.
        seed: Of weights, dropout and rounding.
    """

    setting: Setting
    mode: str
    seed: int

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        setting = self.setting
        return f"{setting.graph}|{setting.model}|{setting.num_ranks}|{self.mode}|{self.seed}"

    @property
    def options(self) -> str:
        """Its command line, but for the budget, which is measured."""
        graph, model = GRAPHS[self.setting.graph], MODELS[self.setting.model]
        return f"{COMMON} {graph} {model} {MODES[self.mode]} --seed {self.seed}"

    @staticmethod
    def from_key(key: str) -> Run:
        """Return the run that a key names."""
        graph, model, num_ranks, mode, seed = key.split("|")
        return Run(Setting(graph, model, int(num_ranks)), mode, int(seed))
