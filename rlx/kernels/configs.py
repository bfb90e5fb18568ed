"""The config classes of all kernel families by name, to read configs back from lir text."""

from __future__ import annotations

from functools import cache

__all__ = ["config_classes"]


@cache
def config_classes() -> dict[str, type]:
    """Config classes, and the classes that configs are made of."""
    from rlx.kernels.attention import AttentionConfig
    from rlx.kernels.common import CommonConfig
    from rlx.kernels.contraction import ContractionConfig
    from rlx.kernels.copy import TransposeConfig
    from rlx.kernels.custom import CustomConfig
    from rlx.kernels.elementwise import ElementwiseConfig
    from rlx.kernels.gather import GatherConfig
    from rlx.kernels.pack import PackConfig
    from rlx.kernels.program import Program, Step
    from rlx.kernels.reduce import ReduceConfig
    from rlx.kernels.rowwise import Reduce, RowProgram, RowwiseConfig
    from rlx.kernels.scatter import ScatterConfig
    from rlx.types import TensorType

    classes = (
        AttentionConfig, CommonConfig, ContractionConfig, TransposeConfig, CustomConfig,
        ElementwiseConfig, GatherConfig, PackConfig, Program, Step, ReduceConfig, RowProgram,
        RowwiseConfig, Reduce, ScatterConfig, TensorType,
    )  # fmt: skip
    return {c.__name__: c for c in classes}
