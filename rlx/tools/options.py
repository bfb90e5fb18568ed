"""Options that several commands have."""

from __future__ import annotations

import argparse

from rlx import knobs
from rlx.tools.arrays import Once, dim

__all__ = [
    "add_compile_options", "add_device", "add_dims", "add_force", "add_precision",
    "add_session_options", "add_threads",
]  # fmt: skip


def add_dims(p: argparse.ArgumentParser) -> None:
    """``--dim NAME=SIZE``, any number of times."""
    p.add_argument(
        "--dim", action=Once, type=dim, default=[], metavar="NAME=SIZE",
        help="the size of a symbolic dim",
    )  # fmt: skip


def add_device(p: argparse._ActionsContainer) -> None:
    """``--device NAME``; None if it is not given."""
    p.add_argument(
        "--device", metavar="DEVICE",
        help="where it is computed, such as vulkan; by default RLX_DEVICE, else the CPU",
    )  # fmt: skip


def add_threads(p: argparse._ActionsContainer) -> None:
    """``--threads N``; None if it is not given."""
    p.add_argument("--threads", type=int, help="number of threads; by default what is allowed")


def add_precision(
    p: argparse._ActionsContainer, help: str = "what products compute in: f32, bf16, f16 or high"
) -> None:
    """``--precision NAME``; None if it is not given."""
    p.add_argument("--precision", help=f"{help} (f32)")


def add_session_options(p: argparse._ActionsContainer) -> None:
    """The device, the precision and the threads of a session."""
    add_device(p)
    add_precision(p)
    add_threads(p)


def add_force(p: argparse._ActionsContainer) -> None:
    """``--force``, without which no file that is there is written to."""
    p.add_argument("--force", action="store_true", help="write over files that are there")


def add_compile_options(p: argparse.ArgumentParser) -> None:
    """What a graph is compiled for, None if that is not given, and how."""
    add_dims(p)
    p.add_argument(
        "--target", "--device", metavar="TARGET",
        help="target, such as cpu, cpu:x86-64-v4 or vulkan; by default RLX_DEVICE, else cpu",
    )  # fmt: skip
    p.add_argument(
        "--dispatch", choices=knobs.DISPATCH, default="native", help="which kernels run ops"
    )
    p.add_argument("--no-fuse", action="store_true", help="keep ops apart")
