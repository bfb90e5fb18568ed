"""From any level of IR to any later stage: what ``rlx-opt --emit`` and inspection share."""

from __future__ import annotations

from typing import Any

from rlx._mlir import ir
from rlx.codegen.builder import KernelText
from rlx.dialects import control
from rlx.dialects.bridge import is_mir, place_of
from rlx.errors import IRError, RlxError, UnsupportedError
from rlx.kernels.registry import emit_kernel
from rlx.lowering.compilation import Compilation
from rlx.lowering.functions import functions
from rlx.lowering.levels import level_of, passes_to
from rlx.lowering.pass_base import Pass
from rlx.lowering.passes.lir_reader import read_schedule
from rlx.lowering.passes.whole_program import WholeProgram
from rlx.lowering.pipeline import run_passes
from rlx.schedule.plan import KernelRef
from rlx.targets.base import BINARY_STAGES, Target

__all__ = ["emit_stage", "level_of", "passes_to", "run_pass"]

_FUNC_OPS = ("func.return", "func.call")
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
    """A schedule is made of @main, whose arguments are inputs and params by name, and of
    @prologue; both hold ops of hir and mir alone."""
    found = functions(module)
    main = found.get("main")
    if main is None:
        raise IRError(f"the module has no function @main, which {name} starts from")
    marks = (
        list(ir.ArrayAttr(main.attributes["arg_attrs"])) if "arg_attrs" in main.attributes else []
    )
    names: set[str] = set()
    for i, arg in enumerate(main.regions[0].blocks[0].arguments):
        mark = ir.DictAttr(marks[i]) if i < len(marks) else ir.DictAttr.get({})
        _check_argument(f"argument {i} of @main", arg, mark, names, place_of(main))
        if name == "mir-to-lir" and not arg.type.has_static_shape:
            message = f"argument {i} of @main is {arg.type}; {name} needs the size of every dim:"
            message += " write them into the text, or save graph.bind({...})"
            raise UnsupportedError(message, place_of(main))
    _check_prologue(found.get("prologue"), main, marks, name)
    for f in (main, found.get("prologue")):
        for view in f.regions[0].blocks[0].operations if f is not None else ():
            op = view.operation
            if op.name not in _FUNC_OPS and not op.name.startswith("hir.") and not is_mir(op):
                raise IRError(f"{op.name} is no op of hir or mir, which {name} takes", place_of(op))


def _check_prologue(
    prologue: ir.Operation | None, main: ir.Operation, marks: list[Any], name: str
) -> None:
    """It takes the params of @main in their order, and gives what @main marks as packed."""
    params = [str(m["rlx.param"]) for m in marks if "rlx.param" in m]
    packed = [m["rlx.packed"] for m in marks if "rlx.packed" in m]
    given, taken = 0, params
    if prologue is not None:
        _check_body(prologue)
        body = prologue.regions[0].blocks[0]
        given = len(list(body.operations)[-1].operation.operands)
        found = list(ir.ArrayAttr(prologue.attributes["arg_attrs"])) if len(body.arguments) else []
        taken = [str(m["rlx.param"]) if "rlx.param" in m else "no param" for m in found]
    if taken != params:
        message = f"@prologue takes {', '.join(taken)}; {name} needs those of @main: "
        raise IRError(message + (", ".join(params) or "none"), place_of(prologue or main))
    for index in packed:
        if not isinstance(index, ir.IntegerAttr) or not 0 <= index.value < given:
            problem = f"rlx.packed is {index}, and @prologue gives {given} values"
            raise IRError(problem, place_of(main))


def _check_argument(
    what: str, arg: ir.Value, mark: ir.DictAttr, names: set[str], place: tuple[str, int]
) -> None:
    for key in ("rlx.input", "rlx.param"):
        if key in mark:
            name = str(mark[key])
            if not isinstance(mark[key], ir.StringAttr) or name in names:
                problem = f"{key} = {name}, expected a name in quotes that no other argument has"
                raise IRError(f"{what} has {problem}", place)
            names.add(name)
            break
    else:
        if "rlx.packed" not in mark:
            raise IRError(
                f'{what} is neither input nor param; write {{rlx.input = "x"}} or '
                '{rlx.param = "w"} after its type',
                place,
            )
    if not isinstance(arg.type, ir.RankedTensorType):
        raise IRError(f"{what} is {arg.type}, expected a tensor", place)


def emit_stage(
    module: ir.Module, stage: str, target: Target, compilation: Compilation | None = None
) -> str | bytes | None:
    """What a target emits for a lir module at ``stage``: text, or bytes for a binary stage; None
    for "lir" itself, which is checked by reading it as a schedule. A target that takes whole graphs
    emits legal, simplified mir."""
    if target.system is not None:
        _check_entry(module, "mir-to-lir")
        emitted = WholeProgram(module, compilation or Compilation(target)).write(stage)
        return emitted if stage in BINARY_STAGES else emitted.decode()
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
