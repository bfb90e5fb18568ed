"""Options that several commands have."""

from __future__ import annotations

import argparse

from rlx.tools.arrays import Once, dim

__all__ = ["add_compile_options", "add_dims"]


def add_dims(p: argparse.ArgumentParser) -> None:
    """``--dim NAME=SIZE``, any number of times."""
    p.add_argument(
        "--dim", action=Once, type=dim, default=[], metavar="NAME=SIZE",
        help="the size of a symbolic dim",
    )  # fmt: skip


def add_compile_options(p: argparse.ArgumentParser) -> None:
    """What a graph is compiled for, and how."""
    add_dims(p)
    p.add_argument("--target", default="cpu", help="target, such as cpu or cpu:x86-64-v4")
    p.add_argument(
        "--dispatch", choices=("native", "common"), default="native", help="which kernels run ops"
    )
    p.add_argument("--no-fuse", action="store_true", help="keep ops apart")
