"""Options that several commands have."""

from __future__ import annotations

import argparse

from rlx import knobs
from rlx.tools.arrays import Once, dim

__all__ = ["add_compile_options", "add_device", "add_dims", "add_threads"]


def add_dims(p: argparse.ArgumentParser) -> None:
    """``--dim NAME=SIZE``, any number of times."""
    p.add_argument(
        "--dim", action=Once, type=dim, default=[], metavar="NAME=SIZE",
        help="the size of a symbolic dim",
    )  # fmt: skip


def add_device(p: argparse.ArgumentParser) -> None:
    """``--device NAME``; None if it is not given."""
    p.add_argument(
        "--device", metavar="NAME",
        help="where it is computed, such as vulkan; by default RLX_DEVICE, else the CPU",
    )  # fmt: skip


def add_threads(p: argparse.ArgumentParser) -> None:
    """``--threads N``; None if it is not given."""
    p.add_argument("--threads", type=int, help="number of threads; by default what is allowed")


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
