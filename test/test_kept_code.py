"""What MLIR and LLVM make is kept between sessions, and only that."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlx import _mlir
from rlx.errors import ToolchainError
from rlx.targets.llvm import machine
from support import kept_code

V2, V3 = (machine.Machine("x86-64", "x86_64-unknown-none", f"x86-64-v{n}") for n in (2, 3))


def options_of(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]


def test_a_text_is_translated_once_for_each_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def emit(
        text: str, target: machine.Machine, opt: int, *, as_object: bool, linked: Any = None
    ) -> bytes:
        if text == "bad":
            raise ToolchainError("refused")
        made.append(f"{text} {target.cpu} {opt} {as_object} {linked is not None}")
        return made[-1].encode()

    def translate(text: str, pipelines: list[str], _: object) -> str:
        made.append(f"{pipelines} {text}")
        return made[-1]

    options = options_of(machine._emit)
    monkeypatch.setattr(kept_code, "FOLDER", str(tmp_path))
    monkeypatch.setattr(machine, "_emit", emit)
    monkeypatch.setattr(_mlir, "text_to_llvm_ir", translate)
    kept_code.install()
    assert options_of(machine._emit) == options
    ctx: Any = None
    cse: Any = ["cse"]
    dce: Any = ["dce"]
    calls = [
        lambda: machine._emit("a", V2, 2, as_object=True),
        lambda: machine._emit("b", V2, 2, as_object=True),
        lambda: machine._emit("a", V3, 2, as_object=True),
        lambda: machine._emit("a", V2, 1, as_object=True),
        lambda: machine._emit("a", V2, 2, as_object=False),
        lambda: machine._emit("a", V2, 2, as_object=True, linked="a".__eq__),
        lambda: _mlir.text_to_llvm_ir("a", cse, ctx).encode(),
        lambda: _mlir.text_to_llvm_ir("a", dce, ctx).encode(),
    ]
    first = [call() for call in calls]
    assert len(set(first)) == len(made) == len(calls)
    assert [call() for call in calls] == first
    assert len(made) == len(calls)
    for _ in range(2):
        with pytest.raises(ToolchainError, match="refused"):
            machine._emit("bad", V2, 2, as_object=True)
    assert len(list(tmp_path.iterdir())) == len(calls)

    monkeypatch.setattr(kept_code, "LIMIT", 100)  # each takes some 30 bytes
    kept_code.prune()
    assert 1 <= len(list(tmp_path.iterdir())) < len(calls)
