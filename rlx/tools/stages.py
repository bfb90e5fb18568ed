"""From any level of IR to any later stage: what ``rlx-opt --emit`` and inspection share."""

from __future__ import annotations

from rlx._mlir import ir
from rlx.dialects import control
from rlx.dialects.bridge import place_of
from rlx.errors import IRError, RlxError, UnsupportedError
from rlx.kernels.builder import KernelText
from rlx.kernels.emit import emit_kernel
from rlx.lowering.base import Compilation, Pass, functions
from rlx.lowering.levels import level_of, passes_to
from rlx.lowering.pipeline import run_passes
from rlx.lowering.schedule import KernelRef, read_schedule
from rlx.targets.base import BINARY_STAGES, Target

__all__ = ["emit_stage", "level_of", "passes_to", "run_pass"]

NEED_ENTRY = ("share-inputs", "hoist", "mir-to-lir")
"""The passes that work on @main and its named arguments; the others take any function."""


def run_pass(module: ir.Module, p: Pass, compilation: Compilation) -> ir.Module:
    """Run one pass; what it gives is not verified.

    Raises PassError for a pass that fails, IRError or UnsupportedError for a module that is not
    fit for it.
    """
    if level_of(module) == "lir":
        raise UnsupportedError(f"the input is lir already; {p.name} takes hir or mir")
    for f in functions(module).values():
        _check_body(f)
    if p.name in NEED_ENTRY:
        _check_entry(module, p.name)
    return run_passes(module, [p], compilation, verify=False)


def _check_body(f: ir.Operation) -> None:
    blocks = len(f.regions[0].blocks)
    if blocks != 1 and not (blocks == 0 and control.KEY in f.attributes):
        name = ir.StringAttr(f.attributes["sym_name"]).value
        raise IRError(f"func @{name} has {blocks} blocks, expected one", place_of(f))


def _check_entry(module: ir.Module, name: str) -> None:
    """A schedule is made of @main, whose arguments are inputs and params by name."""
    main = functions(module).get("main")
    if main is None:
        raise IRError(f"the module has no function @main, which {name} starts from")
    marks = (
        list(ir.ArrayAttr(main.attributes["arg_attrs"])) if "arg_attrs" in main.attributes else []
    )
    arguments = list(main.regions[0].blocks[0].arguments)
    known = {"rlx.input", "rlx.param", "rlx.packed"}
    for i, arg in enumerate(arguments):
        found = {named.name for named in ir.DictAttr(marks[i])} if i < len(marks) else set[str]()
        if not found & known:
            raise IRError(
                f'argument {i} of @main is neither input nor param; write {{rlx.input = "x"}} or '
                '{rlx.param = "w"} after its type',
                place_of(main),
            )
        if not isinstance(arg.type, ir.RankedTensorType):
            raise IRError(f"argument {i} of @main is {arg.type}, expected a tensor", place_of(main))


def emit_stage(module: ir.Module, stage: str, target: Target) -> str | bytes | None:
    """What a target emits for a lir module at ``stage``: text, or bytes for a binary stage; None
    for "lir" itself, which is checked by reading it as a schedule."""
    schedule = read_schedule(module)
    if stage == "lir":
        return None
    texts = [_kernel_text(k, target) for k in schedule.kernels]
    emitted = target.emitter.emit(texts, stage)
    return emitted if stage in BINARY_STAGES else emitted.decode()


def _kernel_text(k: KernelRef, target: Target) -> KernelText:
    try:
        return emit_kernel(k.family, k.name, k.config, target.kernels)
    except RlxError:
        raise
    except Exception as e:
        # Text may hold any config; the classes of a config check no more than their names.
        message = f"family {k.family} cannot emit @{k.name} from the config in the text: {e}"
        raise IRError(message) from e
