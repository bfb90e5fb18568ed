"""Which refusals of the package a test session has provoked.

A site is a ``raise`` with an exception, or a call that makes one of ``rlx.errors`` to be raised
elsewhere. ``install`` makes every module of the package that is imported from then on note the
sites that it reaches: its code is compiled with each exception ``e`` of a site written as
``note(site, e)``. No frame and no line changes.

A site that nothing outside RLX can reach, a defect of ours, is an ``assert`` or raises
AssertionError; those need no test.
"""

from __future__ import annotations

import ast
import marshal
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

__all__ = ["Site", "all_sites", "install", "seen"]

PACKAGE = Path(__file__).resolve().parents[2] / "rlx"
_OURS = (Path(__file__), PACKAGE / "errors.py")
_TOOLS = MAGIC_NUMBER + b"".join(p.read_bytes() for p in _OURS)
"""What instrumented bytecode depends on, beside the module's source and place in the package."""
_NOTE = "_note_raised_"  # no leading pair of underscores, which a class would mangle

Site = tuple[str, int]
"""The file, from the package's folder on, and the line."""

seen: set[Site] = set()
"""The sites that this process has reached."""


def _error_classes() -> frozenset[str]:
    tree = ast.parse((PACKAGE / "errors.py").read_text(encoding="utf-8"))
    return frozenset(n.name for n in tree.body if isinstance(n, ast.ClassDef))


ERRORS = _error_classes()


def _name(e: ast.expr) -> str:
    f = e.func if isinstance(e, ast.Call) else e
    return f.id if isinstance(f, ast.Name) else ""


class _Noting(ast.NodeTransformer):
    """Wraps the exceptions of a module's sites, and lists the sites."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.sites: list[Site] = []

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        if node.exc is not None and _name(node.exc) != "AssertionError":
            inner = self.generic_visit(node.exc)  # its own call is this site, not one more
            assert isinstance(inner, ast.expr)
            node.exc = self._noted(inner, node.lineno)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        inner = self.generic_visit(node)
        assert isinstance(inner, ast.Call)
        return self._noted(inner, node.lineno) if _name(node) in ERRORS else inner

    def _noted(self, e: ast.expr, line: int) -> ast.expr:
        self.sites.append((self.file, line))
        file, number, note = (
            ast.Constant(self.file),
            ast.Constant(line),
            ast.Name(_NOTE, ast.Load()),
        )
        call = ast.Call(note, [file, number, e], [])
        return ast.fix_missing_locations(ast.copy_location(call, e))


def _transformed(path: Path) -> tuple[ast.Module, list[Site]]:
    noting = _Noting(str(path.relative_to(PACKAGE.parent)))
    tree = noting.visit(ast.parse(path.read_text(encoding="utf-8")))
    return tree, noting.sites


def all_sites() -> Iterator[Site]:
    """Every site of the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield from _transformed(path)[1]


def note(file: str, line: int, error: Any) -> Any:
    """Remember that a site was reached; returns its exception."""
    seen.add((file, line))
    return error


class Loader(SourceFileLoader):
    """Loads a module that notes its sites. Its bytecode is kept beside the usual one, under a name
    of its own: compiling all of the package takes a quarter of a minute."""

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_bytes()
        place = Path(self.path).relative_to(PACKAGE)
        digest = sha256(_TOOLS + os.fsencode(place) + source).digest()
        kept = Path(cache_from_source(self.path, optimization="noted"))
        with suppress(OSError):
            data = kept.read_bytes()
            if data.startswith(digest):
                return _at(self.path, marshal.loads(data[len(digest) :]))
        tree, _ = _transformed(Path(self.path))
        code = compile(tree, self.path, "exec", dont_inherit=True)
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                _write(kept, digest + marshal.dumps(code))
        return code

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[_NOTE] = note
        super().exec_module(module)


def _at(path: str, code: CodeType) -> CodeType:
    """Code whose frames name a path: a copy of the package has its bytecode too."""
    if code.co_filename == path:
        return code
    consts = (_at(path, c) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=path, co_consts=tuple(consts))


def _write(file: Path, data: bytes) -> None:
    """Write a file as a whole: other processes may read or write it at this moment."""
    file.parent.mkdir(exist_ok=True)
    own = file.with_name(f"{file.name}.{os.getpid()}")
    own.write_bytes(data)
    own.replace(file)


class _Finder:
    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.split(".", maxsplit=1)[0] != "rlx":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = Loader(name, spec.loader.path)
        return spec


def install() -> list[str]:
    """Note the sites of every module of the package that is imported from now on; returns those
    for which it is too late."""
    sys.meta_path.insert(0, _Finder())
    return sorted(m for m in sys.modules if m.startswith("rlx."))
