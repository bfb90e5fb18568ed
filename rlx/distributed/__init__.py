"""Many ranks: graphs that run together and exchange tensors.

A mesh (``rlx.Mesh``) gives ranks names along its axes, and collectives are ops that take such an
axis. What runs a graph with collectives is a rank: a process that is connected (``connect``), as
``rlx launch`` starts them, or a thread (``run_threads``). ``interpret`` is the reference, which
runs all ranks at once.
"""

from __future__ import annotations

from rlx.base.world import world_size
from rlx.distributed.connections import connect, current_rank, disconnect, run_threads
from rlx.distributed.cost import Cost, Network, cost
from rlx.distributed.pipeline import Pipeline, PipelineRank, pipeline
from rlx.distributed.reference import interpret
from rlx.distributed.report import Exchange, Placed, ShardingReport
from rlx.distributed.sharding import Sharded, ShardedGraph

__all__ = [
    "Cost", "Exchange", "Network", "Pipeline", "PipelineRank", "Placed", "Sharded", "ShardedGraph",
    "ShardingReport", "connect", "cost", "current_rank", "disconnect", "interpret", "pipeline",
    "run_threads", "world_size",
]  # fmt: skip
