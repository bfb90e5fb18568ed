"""The table of kernel families: one row says all that is known of a family by its name.

Nothing is imported here before it is asked for: reading the table costs nothing, and a process
loads the families of its target alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast, get_args, get_type_hints

from rlx.base.frozen import frozen
from rlx.errors import IRError

if TYPE_CHECKING:
    from rlx.codegen.builder import Frame, KernelTarget, KernelText
    from rlx.codegen.family import Family

__all__ = [
    "FAMILIES", "FamilyRow", "config_classes", "emit_kernel", "families_on", "load_families",
]  # fmt: skip


@frozen
class FamilyRow:
    """What is known of a family by its name.

    ``module`` lies in ``rlx.kernels`` and has ``emit``, whose annotation says which configs it
    takes. ``selector`` is a module in ``rlx.lowering.select`` and a name in it; a family without
    one is launched by the selectors of others. ``frames`` are the kinds of targets whose ops it is
    asked for; where ``ops`` names some, it is asked about regions that hold one of these alone, and
    loaded then. A launch brings the literals of the kernel as scalars unless ``literals`` is False.
    Configs of a ``symbolic`` family may have symbolic dims, of which a launch brings the sizes.
    The kernels of a ``joint`` family write the results of several ops of a region. ``overwrites``
    says when a result may take the memory of an operand that nothing else needs: "elements", if it
    is read element by element; "epilogue", if the epilogue alone reads it; "parts", if the kernel
    writes a part of it. A ``long`` one has tiles in registers: its kernels take longest to make.
    The configs of a ``plain`` one name every element type that its kernels compute with.
    """

    name: str
    module: str
    selector: str = ""
    frames: tuple[Frame, ...] = ()
    ops: tuple[str, ...] = ()
    literals: bool = True
    symbolic: bool = False
    joint: bool = False
    overwrites: Literal["", "elements", "epilogue", "parts"] = ""
    long: bool = False
    plain: bool = True


_CPU: tuple[Frame, ...] = ("cpu",)
_GPU: tuple[Frame, ...] = ("gpu",)
_ALL: tuple[Frame, ...] = ("cpu", "gpu")

_TRANSFORMS = ("mir.fft", "mir.ifft", "mir.rfft", "mir.irfft")

_ROWS = (
    FamilyRow("fft", "fft.emit", "fft:SELECTOR", _CPU, ops=_TRANSFORMS, long=True),
    FamilyRow("gpu_fft", "fft.gpu", "gpu_fft:SELECTOR", _GPU, ops=_TRANSFORMS),
    FamilyRow("custom", "fallback.foreign", "fallback.foreign:SELECTOR", _CPU, plain=False),
    FamilyRow(
        "block_product",
        "matmul.block_product",
        "matmul.block_weights:SELECTOR",
        _CPU,
        ops=("mir.dequant_matmul",),
        long=True,
        plain=False,
    ),
    FamilyRow(
        "grouped_block_product",
        "matmul.block_product",
        "matmul.block_weights:GROUPED",
        _CPU,
        ops=("mir.dequant_grouped_matmul",),
        plain=False,
    ),
    FamilyRow(
        "block_product_rows",
        "matmul.block_product_rows",
        "matmul.block_rows:PRODUCT",
        _CPU,
        ops=("mir.dequant_matmul_rows",),
        long=True,
        plain=False,
    ),
    FamilyRow(
        "block_rows",
        "matmul.block_rows",
        "matmul.block_rows:ROUND",
        _CPU,
        ops=("mir.quantize_rows",),
        plain=False,
    ),
    FamilyRow(
        "gpu_block_product",
        "matmul.gpu_block_product",
        "matmul.gpu_blocks:SELECTOR",
        _GPU,
        ops=("mir.dequant_matmul", "mir.dequant_matmul_rows"),
    ),
    FamilyRow(
        "contraction",
        "matmul.emit",
        "matmul.blocked:SELECTOR",
        _ALL,
        overwrites="epilogue",
        long=True,
    ),
    FamilyRow(
        "integer_contraction",
        "matmul.emit",
        "matmul.blocked:INTEGERS",
        _CPU,
        long=True,
        plain=False,
    ),
    FamilyRow(
        "conv",
        "conv.planes",
        "conv.select:SELECTOR",
        _CPU,
        ops=("mir.conv", "mir.conv_transpose"),
        overwrites="epilogue",
        long=True,
    ),
    FamilyRow(
        "integer_conv",
        "conv.planes",
        "conv.integer:SELECTOR",
        _CPU,
        ops=("mir.conv_integer",),
        overwrites="epilogue",
        long=True,
        plain=False,
    ),
    FamilyRow(
        "conv_weights",
        "conv.weights_grad",
        "conv.weights_grad:SELECTOR",
        _CPU,
        ops=("mir.conv_weights",),
        long=True,
    ),
    FamilyRow(
        "attention", "attention.emit", "attention:SELECTOR", _ALL, ops=("mir.attention",), long=True
    ),
    FamilyRow("rope", "attention.rope", "rope:SELECTOR", _CPU, ops=("mir.rope",)),
    FamilyRow(
        "paged_attention",
        "attention.paged",
        "paged_attention:SELECTOR",
        _CPU,
        ops=("mir.paged_attention",),
        long=True,
    ),
    FamilyRow(
        "gpu_paged_attention",
        "attention.gpu_paged",
        "gpu_paged_attention:SELECTOR",
        _GPU,
        ops=("mir.paged_attention",),
    ),
    FamilyRow(
        "attention_grad",
        "attention.grad",
        "attention:GRAD",
        _CPU,
        ops=("mir.attention_grad",),
        long=True,
    ),
    FamilyRow("rowwise", "rowwise.config", "rowwise.select:SELECTOR", _ALL, joint=True),
    FamilyRow(
        "elementwise",
        "elementwise.emit",
        "elementwise.select:SELECTOR",
        _ALL,
        joint=True,
        overwrites="elements",
    ),
    FamilyRow(
        "copy", "elementwise.copy", "elementwise.copy:SELECTOR", _ALL, ops=("mir.concat", "mir.pad")
    ),
    FamilyRow("gather", "index.gather", "index.gather:SELECTOR", _ALL, ops=("mir.gather",)),
    FamilyRow(
        "box",
        "index.box",
        "index.box:SELECTOR",
        _ALL,
        ops=("mir.dynamic_slice", "mir.dynamic_update_slice"),
        overwrites="parts",
    ),
    FamilyRow(
        "scatter",
        "index.scatter",
        "index.scatter:SELECTOR",
        _CPU,
        ops=("mir.scatter", "mir.scatter_add"),
        overwrites="parts",
    ),
    FamilyRow("reduce", "reduce.emit", "reduce.select:SELECTOR", _ALL),
    FamilyRow(
        "argreduce",
        "reduce.argreduce",
        "reduce.argreduce:SELECTOR",
        _CPU,
        ops=("mir.argmax", "mir.argmin"),
    ),
    FamilyRow(
        "pool",
        "conv.pool",
        "conv.pool:SELECTOR",
        _CPU,
        ops=("mir.max_pool", "mir.max_pool_indices", "mir.max_pool_backward", "mir.mean_pool"),
    ),
    FamilyRow("common", "fallback.emit", "fallback.select:SELECTOR", symbolic=True, plain=False),
    # Those that claim nothing: one for what is inside control flow, and parts of families above.
    FamilyRow("loop", "loop.emit", frames=_CPU, plain=False),
    FamilyRow("conv_layout", "conv.layout"),
    FamilyRow("skinny", "matmul.skinny"),
    FamilyRow("pack", "matmul.pack"),
    FamilyRow("block_pack", "matmul.block_pack", plain=False),
    FamilyRow("block_product_dots", "matmul.block_product_dots", plain=False),
    FamilyRow("block_product_tiles", "matmul.block_product_tiles", plain=False),
    FamilyRow("pack_strided", "matmul.pack_strided"),
    FamilyRow("batched_small", "matmul.batched_small"),
    FamilyRow("gpu_attention", "attention.gpu"),
    FamilyRow("gpu_block_pack", "matmul.gpu_block_panels"),
    FamilyRow("gpu_contraction", "matmul.gpu"),
    FamilyRow("gpu_reduce", "reduce.gpu"),
    # Code on blocks, to which a launch brings no scalars.
    FamilyRow("triton_attention", "attention.triton", literals=False),
    FamilyRow("triton_contraction", "matmul.triton", literals=False),
)

FAMILIES: Mapping[str, FamilyRow] = {row.name: row for row in _ROWS}
"""Every family by name, in the order in which they are asked whether they claim a region."""


@cache
def families_on(frame: Frame) -> tuple[str, ...]:
    """The families that a kind of target has emitters for; the rest goes the common way."""
    return tuple(row.name for row in _ROWS if frame in row.frames)


def load_families(names: Iterable[str]) -> None:
    """Load the modules of families, which takes longer than to make a kernel."""
    for name in names:
        _load(name)


def emit_kernel(family: str, name: str, config: Any, target: KernelTarget) -> KernelText:
    """The text of the kernel ``name`` of a family; IRError for a family that does not exist."""
    return _load(family).emit(name, config, target)


@cache
def config_classes(family: str) -> Mapping[str, type]:
    """The classes of a family's configs, and of what these are made of, by name: those that the
    annotations of its ``emit`` and of their fields name. IRError for no family."""
    from rlx.types import DType

    found: dict[str, type] = {}
    kinds: list[Any] = [get_type_hints(_load(family).emit)["config"]]
    while kinds:
        kind = kinds.pop()
        if kind is DType or not (isinstance(kind, type) and is_dataclass(kind)):
            kinds += get_args(kind)
        elif kind.__name__ not in found:
            found[kind.__name__] = kind
            kinds += get_type_hints(kind).values()
        else:
            assert found[kind.__name__] is kind, f"{family} has two classes {kind.__name__}"
    return found


@cache
def _load(family: str) -> Family:
    if family not in FAMILIES:
        raise IRError(f"no kernel family is called {family!r}; there are {', '.join(FAMILIES)}")
    return cast("Family", importlib.import_module(f"rlx.kernels.{FAMILIES[family].module}"))
