"""The order of named stages, of which each may need others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from rlx.base.frozen import frozen
from rlx.errors import GraphError, NameError, did_you_mean
from rlx.ir.builders import located, public

__all__ = ["PipelineSchedule", "pipeline_schedule"]


@public
@frozen
class PipelineSchedule:
    """Stages in an order in which each comes after those that it needs (``deps``)."""

    name: str
    order: tuple[str, ...]
    deps: Mapping[str, tuple[str, ...]]

    def run(self, stages: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
        """What the functions of the stages give, by stage: each is called in order with what those
        that it needs gave. NameError for a stage without a function."""
        found: dict[str, Any] = {}
        for stage in self.order:
            if stage not in stages:
                hint = did_you_mean(stage, stages)
                raise NameError(f"schedule {self.name!r}: no function for stage {stage!r}{hint}")
            found[stage] = stages[stage](*(found[d] for d in self.deps[stage]))
        return found


@located
def pipeline_schedule(name: str, stages: Mapping[str, Iterable[str]]) -> PipelineSchedule:
    """The order of stages that are given with those they need: of stages that do not need each
    other the first given comes first. NameError for a need that is no stage, GraphError for a
    circle."""
    deps = {stage: tuple(dict.fromkeys(needs)) for stage, needs in stages.items()}
    for stage, needs in deps.items():
        for need in needs:
            if need not in deps:
                raise NameError(
                    f"schedule {name!r}: stage {stage!r} needs {need!r}, which is no stage"
                    f"{did_you_mean(need, deps)}"
                )
    sorter = TopologicalSorter(deps)
    try:
        sorter.prepare()
    except CycleError as e:
        raise GraphError(
            f"schedule {name!r}: a circle: {' needs '.join(e.args[1][::-1])}"
        ) from None
    order: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=list(deps).index)
        order += ready
        sorter.done(*ready)
    return PipelineSchedule(name, tuple(order), deps)
