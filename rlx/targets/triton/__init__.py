"""Triton's compiler, for the targets cuda and rocm: from TTIR (``rlx.codegen.triton``) to machine
code, ahead of time and without a GPU. What is compiled needs Triton no more.

RLX_TRITON says whether it is used; compile.py has the compiler's calls.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from rlx import knobs
from rlx.codegen.triton.machine import TritonMachine
from rlx.errors import ToolchainError

if TYPE_CHECKING:
    from rlx.targets.base import Target

__all__ = ["TESTED", "chosen", "installed", "maker", "usable"]

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


def maker(
    features: Any, made: Callable[[Any, TritonMachine | None], Target]
) -> Callable[[str | None], Target]:
    """``make_target`` of a target for which Triton may compile, by its module ``features`` and what
    makes it for features and a machine."""
    made = cache(made)

    def make_target(name: str | None = None) -> Target:
        """The target for a GPU by name; by default that of ``features.DEFAULT``.

        Raises DeviceError for an unknown name, and ToolchainError where RLX_TRITON wants a Triton
        that is not here.
        """
        found = features.preset(name or features.DEFAULT)
        return made(found, chosen(found.triton))

    return make_target
