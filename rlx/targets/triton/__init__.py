"""Triton's compiler, for the targets cuda and rocm: from TTIR (``rlx.kernels.triton``) to machine
code, ahead of time and without a GPU. What is compiled needs Triton no more.

RLX_TRITON says whether it is used; compile.py has the compiler's calls.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache

from rlx import knobs
from rlx.errors import ToolchainError
from rlx.kernels.triton.machine import TritonMachine

__all__ = ["TESTED", "chosen", "installed", "usable"]

TESTED = "3.9"
"""The version whose compiler is called: its Python interface is not the same in all."""


@cache
def installed() -> str | None:
    """The version of the package triton; None if it is not there. It is not imported."""
    if importlib.util.find_spec("triton") is None:
        return None
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("triton")
    except PackageNotFoundError:  # a folder that is called so
        return None


def usable(version: str | None) -> bool:
    """Whether a version is one that RLX calls."""
    return version is not None and f"{version}.".startswith(f"{TESTED}.")


def chosen(machine: Callable[[str, bool], TritonMachine | None]) -> TritonMachine | None:
    """The machine as Triton is to be told of it: ``machine(version, always)``; None where Triton is
    not used.

    ToolchainError if RLX_TRITON is "on" and there is no Triton that RLX can call.
    """
    mode, version = knobs.triton.get(), installed()
    if mode == "off":
        return None
    if version is not None and usable(version):
        return machine(version, mode == "on")
    if mode == "on":
        found = "is not installed" if version is None else f"is here as version {version}"
        raise ToolchainError(
            f"RLX_TRITON is on, and the package triton {found}; RLX calls version {TESTED}:"
            " pip install 'rlx[triton]'"
        )
    return None
