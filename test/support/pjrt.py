"""The functions of PJRT as C programs call them: structs as the header declares them, by ctypes."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path
from typing import Any

HEADER = Path(__file__).resolve().parents[2] / "rlx/runtime/native/third_party/pjrt_c_api.h"

_PLAIN: dict[str, Any] = {
    "size_t": ctypes.c_size_t, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
    "int": ctypes.c_int, "bool": ctypes.c_bool, "uintptr_t": ctypes.c_size_t,
    "intptr_t": ctypes.c_ssize_t, "float": ctypes.c_float, "uint32_t": ctypes.c_uint32,
}  # fmt: skip


@cache
def _text() -> str:
    return re.sub(r"//.*", "", HEADER.read_text("utf-8"))


def _fields(body: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    union = re.search(r"union \{(.*?)\};", body, re.DOTALL)
    if union:
        before, after = body[: union.start()], body[union.end() :]
        inside = type("Union", (ctypes.Union,), {"_fields_": _fields(union[1])})
        return [*_fields(before), ("union", inside), *_fields(after)]
    for entry in body.split(";"):
        words = entry.strip()
        if not words:
            continue
        slot = re.fullmatch(r"_PJRT_API_STRUCT_FIELD\((\w+)\)", words)
        function = re.search(r"\(\*(\w+)\)", words)
        name = (slot or function or re.search(r"(\w+)$", words))[1]  # type: ignore[index]
        kind = words.removesuffix(name).removeprefix("const ").strip()
        found.append((name, _kind(kind, slot or function or "*" in words)))
    return found


def _kind(word: str, pointer: Any) -> Any:
    if pointer or "Callback" in word or "Deleter" in word:
        return ctypes.c_void_p
    if word in _PLAIN:
        return _PLAIN[word]
    return struct(word) if f"struct {word} {{" in _text() else ctypes.c_int  # an enumeration


@cache
def struct(name: str) -> Any:
    """A struct of the header."""
    body = re.search(rf"struct {name} \{{\n(.*?)\n\}}", _text(), re.DOTALL)
    assert body is not None, name
    return type(name, (ctypes.Structure,), {"_fields_": _fields(body[1])})


@cache
def enumeration(name: str) -> int:
    """The value of a name of an enumeration, whose members are numbered from 0."""
    prefix = re.escape(name.rsplit("_", 1)[0])
    members = re.findall(rf"\b({prefix}_\w+)\s*(?:= *(\d+))?[,\n]", _text())
    if members and members[0][1]:
        return next(int(n) for m, n in members if m == name)
    return [m for m, _ in members].index(name)


class PjrtError(Exception):
    """An error of a function of the table."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Api:
    """A table; ``call`` fills the struct of a function's arguments, and gives it back."""

    def __init__(self, capsule: Any) -> None:
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        self.table = struct("PJRT_Api").from_address(get(capsule, b"pjrt_c_api"))

    @property
    def functions(self) -> dict[str, int | None]:
        """The addresses by name."""
        names = [n for n, _ in self.table._fields_ if n.startswith("PJRT_")]
        return {n: getattr(self.table, n) for n in names}

    def call(self, name: str, **given: Any) -> Any:
        """Call a function by its name without ``PJRT_``; PjrtError if it fails."""
        args = struct(f"PJRT_{name}_Args")(**given)
        args.struct_size = ctypes.sizeof(args)
        address, kind = self.functions[f"PJRT_{name}"], ctypes.CFUNCTYPE(*[ctypes.c_void_p] * 2)
        assert address is not None, name
        error = kind(address)(ctypes.addressof(args))
        if error and name not in ("Error_Destroy", "Error_Message"):
            said = self.call("Error_Message", error=error)
            code = self.call("Error_GetCode", error=error).code
            message = ctypes.string_at(said.message, said.message_size).decode()
            self.call("Error_Destroy", error=error)
            raise PjrtError(code, message)
        return args
