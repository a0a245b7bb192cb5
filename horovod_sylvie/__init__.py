"""Full-graph GNN training and gradient sparsification for unmodified Horovod.

The face of the package: names and nothing else. They are looked up when first used (PEP 562), so
that `import horovod_sylvie` and the command line work before torch is installed.
"""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .comm.agreement import gather_bytes, require_agreement, together
    from .comm.errors import CommunicationError, CommunicationTimeout, PeerError
    from .comm.horovod import HorovodCommunicator
    from .comm.loopback import LoopbackCommunicator, run_loopback
    from .comm.protocol import Communicator, Handle
    from .gradient.compression import Compression
    from .gradient.density import Warmup
    from .gradient.outcome import NonFiniteGradientError
    from .gradient.payload import PayloadError
    from .gradient.telemetry import Telemetry
    from .halo.automatic import Automatic
    from .halo.batch_norm import SynchronizedBatchNorm
    from .halo.bit_policy import BudgetBits, DegreeBits
    from .halo.codec import Codec, FullPrecision, Half
    from .halo.convert import convert_model
    from .halo.delta import Delta
    from .halo.epoch_report import EpochReport
    from .halo.exchange import HaloExchange
    from .halo.gcn_norm import gcn_norm
    from .halo.objective import Evaluation, evaluate, loss_share
    from .halo.packed_codec import Bits, OneBit
    from .halo.plan import HaloPlan
    from .halo.staleness import BoundedStaleness, Pipelined, Staleness, Synchronous
    from .halo.traffic import ExchangeTimes, Traffic, TrafficLedger
    from .optimizer import DistributedOptimizer
    from .partition.graph import Graph
    from .partition.header import is_partition
    from .partition.loader import load_partition
    from .partition.local_partition import Partition
    from .partition.partitioner import partition_graph
    from .partition.report import PartitionReport
    from .run_report.run_report import RunReport

__all__ = [
    "Automatic",
    "Bits",
    "BoundedStaleness",
    "BudgetBits",
    "Codec",
    "CommunicationError",
    "CommunicationTimeout",
    "Communicator",
    "Compression",
    "DegreeBits",
    "Delta",
    "DistributedOptimizer",
    "EpochReport",
    "Evaluation",
    "ExchangeTimes",
    "FullPrecision",
    "Graph",
    "Half",
    "HaloExchange",
    "HaloPlan",
    "Handle",
    "HorovodCommunicator",
    "LoopbackCommunicator",
    "NonFiniteGradientError",
    "OneBit",
    "Partition",
    "PartitionReport",
    "PayloadError",
    "PeerError",
    "Pipelined",
    "RunReport",
    "Staleness",
    "SynchronizedBatchNorm",
    "Synchronous",
    "Telemetry",
    "Traffic",
    "TrafficLedger",
    "Warmup",
    "__version__",
    "convert_model",
    "evaluate",
    "gather_bytes",
    "gcn_norm",
    "is_partition",
    "load_partition",
    "loss_share",
    "partition_graph",
    "require_agreement",
    "run_loopback",
    "together",
]

_MODULE_OF: Final = MappingProxyType(
    {
        "Automatic": "halo.automatic",
        "Bits": "halo.packed_codec",
        "BoundedStaleness": "halo.staleness",
        "BudgetBits": "halo.bit_policy",
        "Codec": "halo.codec",
        "CommunicationError": "comm.errors",
        "CommunicationTimeout": "comm.errors",
        "Communicator": "comm.protocol",
        "Compression": "gradient.compression",
        "DegreeBits": "halo.bit_policy",
        "Delta": "halo.delta",
        "DistributedOptimizer": "optimizer",
        "EpochReport": "halo.epoch_report",
        "Evaluation": "halo.objective",
        "ExchangeTimes": "halo.traffic",
        "FullPrecision": "halo.codec",
        "Graph": "partition.graph",
        "Half": "halo.codec",
        "HaloExchange": "halo.exchange",
        "HaloPlan": "halo.plan",
        "Handle": "comm.protocol",
        "HorovodCommunicator": "comm.horovod",
        "LoopbackCommunicator": "comm.loopback",
        "NonFiniteGradientError": "gradient.outcome",
        "OneBit": "halo.packed_codec",
        "Partition": "partition.local_partition",
        "PartitionReport": "partition.report",
        "PayloadError": "gradient.payload",
        "PeerError": "comm.errors",
        "Pipelined": "halo.staleness",
        "RunReport": "run_report.run_report",
        "Staleness": "halo.staleness",
        "SynchronizedBatchNorm": "halo.batch_norm",
        "Synchronous": "halo.staleness",
        "Telemetry": "gradient.telemetry",
        "Traffic": "halo.traffic",
        "TrafficLedger": "halo.traffic",
        "Warmup": "gradient.density",
        "convert_model": "halo.convert",
        "evaluate": "halo.objective",
        "gather_bytes": "comm.agreement",
        "gcn_norm": "halo.gcn_norm",
        "is_partition": "partition.header",
        "load_partition": "partition.loader",
        "loss_share": "halo.objective",
        "partition_graph": "partition.partitioner",
        "require_agreement": "comm.agreement",
        "run_loopback": "comm.loopback",
        "together": "comm.agreement",
    }
)

# Packages that an extra brings, and the command that brings them
_INSTALL_COMMAND: Final = MappingProxyType(
    {
        "torch": "pip install torch",
        "torch_geometric": "pip install 'horovod_sylvie[gnn]'",
        "pymetis": "pip install 'horovod_sylvie[gnn]'",
        "scipy": "pip install 'horovod_sylvie[gnn]'",
        "tqdm": "pip install 'horovod_sylvie[gnn]'",
    }
)


def __getattr__(name: str) -> Any:
    """Import the module that defines `name`, once, and return the object."""
    if name not in _MODULE_OF:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    try:
        module = importlib.import_module(f"{__name__}.{_MODULE_OF[name]}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _INSTALL_COMMAND:
            raise
        msg = f"{__name__}.{name} needs {package!r}, which is missing: {_INSTALL_COMMAND[package]}"
        raise ImportError(msg, name=error.name) from error
    value = getattr(module, name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    """List the public names, those not yet imported too."""
    return sorted({*globals(), *__all__})
