"""Reproducers: the IR before a pass, with the pipeline that fails on it, in one file.

The pipeline stands where mlir-opt puts it, in the resource ``mlir_reproducer`` at the end of the
text; what else decides a compile stands beside it, in ``rlx_reproducer``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rlx import knobs
from rlx.base.frozen import frozen
from rlx.errors import IRError

if TYPE_CHECKING:
    from rlx.tools.opt.steps import Root

__all__ = ["IGNORED", "Settings", "find_reproducer", "write_reproducer"]

IGNORED = re.compile(r"ignoring unknown external resources for '(mlir|rlx)_reproducer'")
"""MLIR's warning about the resources, which the driver reads by itself."""


@frozen
class Settings:
    """What decides the result of a run besides its input: ``target`` and ``emit`` as written on
    the command line, ``pipeline`` as text, ``disabled`` the rules that are left out."""

    pipeline: str
    verify_each: bool
    target: str
    dispatch: Literal["native", "common"]
    fuse: bool
    emit: str
    disabled: tuple[str, ...]


_TEMPLATE = """
{{-#
  external_resources: {{
    mlir_reproducer: {{
      pipeline: "{pipeline}",
      disable_threading: true,
      verify_each: {verify_each}
    }},
    rlx_reproducer: {{
      target: "{target}",
      dispatch: "{dispatch}",
      fuse: {fuse},
      emit: "{emit}",
      disable_rules: "{disabled}"
    }}
  }}
#-}}
"""


def write_reproducer(root: Root, settings: Settings, path: str | None) -> str:
    """Write a reproducer to a file, a new one in the temporary folder for None; returns its path.

    The generic form is used, which needs no valid module.
    """
    if path is None:
        import tempfile  # takes a while to load, and passes rarely fail

        with tempfile.NamedTemporaryFile(prefix="rlx-opt-", suffix=".mlir", delete=False) as file:
            path = file.name
    s = settings
    block = _TEMPLATE.format(
        pipeline=_escaped(s.pipeline), verify_each=str(s.verify_each).lower(),
        target=_escaped(s.target), dispatch=s.dispatch, fuse=str(s.fuse).lower(),
        emit=_escaped(s.emit), disabled=",".join(s.disabled),
    )  # fmt: skip
    text = root.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)
    Path(path).write_text(f"{text}{block}", encoding="utf-8")
    return path


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


_FIELD = r'\b{}\s*:\s*(?:"((?:[^"\\]|\\.)*)"|(\w+))'


def find_reproducer(text: str, otherwise: Settings) -> Settings:
    """The settings that a text carries, ``otherwise``'s where it says nothing; IRError if it holds
    no reproducer."""
    blocks = [m for m in re.findall(r"\{-#.*?#-\}", text, re.DOTALL) if "mlir_reproducer" in m]
    if not blocks:
        raise IRError("the input holds no reproducer: a resource mlir_reproducer with a pipeline")

    def read(name: str, default: str) -> str:
        found = re.search(_FIELD.format(name), blocks[-1])
        if found is None:
            return default
        return found[2] if found[1] is None else re.sub(r"\\(.)", r"\1", found[1])

    dispatch = read("dispatch", otherwise.dispatch)
    if dispatch not in knobs.DISPATCH:
        raise IRError(f"the reproducer's dispatch is {dispatch!r}, expected native or common")
    return Settings(
        pipeline=read("pipeline", ""),
        verify_each=read("verify_each", "true") == "true",
        target=read("target", otherwise.target),
        dispatch="native" if dispatch == "native" else "common",
        fuse=read("fuse", "true") == "true",
        emit=read("emit", ""),
        disabled=tuple(r for r in read("disable_rules", "").split(",") if r),
    )
