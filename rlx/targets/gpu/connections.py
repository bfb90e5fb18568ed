"""The libraries that connect ranks on GPUs, which have NCCL's interface."""

from __future__ import annotations

from rlx.base.frozen import frozen

__all__ = ["CONNECTIONS", "Connection"]


@frozen
class Connection:
    """What connects ranks: a library, its file, and the package that brings it, if there is one."""

    name: str
    file: str
    package: str = ""


CONNECTIONS = {
    "cuda": Connection("NCCL", "libnccl.so.2", "nvidia-nccl-cu12"),
    "rocm": Connection("RCCL", "librccl.so.1"),
}
"""By API. Ranks on other GPUs meet by way of the host."""
