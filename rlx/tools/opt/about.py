"""Self-description of rlx-opt: versions, passes, dialects, and the pages of --explain."""

from __future__ import annotations

import importlib.metadata
import inspect
import platform
import sys
from collections.abc import Iterator

import rlx
from rlx import errors
from rlx.errors import RlxError, did_you_mean
from rlx.lowering.registry import PASSES, pass_class
from rlx.tools.opt.flags import UsageError

__all__ = ["dialects", "explain", "passes", "versions"]


def versions() -> str:
    """The versions of RLX and of what it stands on."""
    rows = {"rlx-opt": rlx.__version__}
    for package, holds in (("torch-mlir", "MLIR"), ("llvmlite", "LLVM")):
        try:
            rows[f"{holds} (of {package})"] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            rows[f"{holds} (of {package})"] = "not installed"
    rows["Python"] = platform.python_version()
    return "\n".join(f"{name} {version}" for name, version in rows.items())


def passes() -> str:
    """The passes in the order of the pipeline."""
    lines = [f"{name:14s}{_first_line(pass_class(name))}" for name in PASSES]
    return "\n".join([*lines, "Passes of MLIR, such as canonicalize and cse, are not listed."])


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0]


def _rules(name: str) -> tuple[str, ...]:
    from rlx.lowering.pass_base import RulePass

    cls = pass_class(name)
    return cls.rules if issubclass(cls, RulePass) else ()


def dialects() -> str:
    """The dialects that text may use."""
    from rlx._mlir import dialect_names
    from rlx.dialects.context import make_context

    return f"Available Dialects: {','.join(dialect_names(make_context()))}"


def explain(name: str) -> str:
    """The page of an op, a pass, a rule or a class of errors; UsageError if there is none."""
    for page in (_op, _pass, _rule, _error):
        if found := page(name):
            return found
    from rlx.ops import OP_MODULES

    known = [*OP_MODULES, *PASSES, *dict(_rule_texts()), *errors.__all__]
    raise UsageError(
        f"--explain: no op, pass, rule or class of errors is called {name!r}"
        f"{did_you_mean(name, known)}"
    )


def _op(name: str) -> str | None:
    from rlx.ir.op import op_class
    from rlx.ops import OP_MODULES

    for full in (name, f"mir.{name}", f"hir.{name}"):
        if full in OP_MODULES:
            from rlx.tools.op_page import section

            return section(op_class(full)).strip()
    return None


def _pass(name: str) -> str | None:
    if name not in PASSES:
        return _upstream(name)
    from rlx.lowering.pass_options import option_names

    cls = pass_class(name)
    lines = [f"pass {name}", "", inspect.getdoc(sys.modules[cls.__module__]) or ""]
    if options := option_names(cls):
        lines += ["", f"Options: {', '.join(options)}"]
    if rules := _rules(name):
        lines += ["", f"Rules: {', '.join(rules)}"]
    return "\n".join(lines)


def _upstream(name: str) -> str | None:
    from rlx._mlir import Pipeline, context
    from rlx.tools.opt.pipeline_text import parse_pipeline

    try:
        steps = parse_pipeline(str(Pipeline(f"any({name})", context())), "any")
    except (RlxError, UsageError):
        return None
    options = steps[0].options or "none"
    return f"pass {name}\n\nA pass of MLIR. Options, with their defaults: {options}"


def _rule(name: str) -> str | None:
    return dict(_rule_texts()).get(name)


def _rule_texts() -> Iterator[tuple[str, str]]:
    from rlx.lowering.rules import RULES

    texts = {r.name: f"\n\n{r.text}\n\nOn element types: {', '.join(r.kinds)}" for r in RULES}
    for owner in PASSES:
        for rule in _rules(owner):
            yield rule, f"rule {rule} of pass {owner}{texts.get(rule, '')}"


def _error(name: str) -> str | None:
    cls = getattr(errors, name, None) if name in errors.__all__ else None
    if not isinstance(cls, type):
        return None
    above = [c.__name__ for c in cls.__mro__[1:] if c.__module__ != "builtins"]
    lineage = f" ({', '.join(above)})" if above else ""
    return f"error {name}{lineage}\n\n{inspect.getdoc(cls)}"
