"""Faults of kernels: what a run reports of data that has no result."""

from __future__ import annotations

from rlx.kernels.builder import Kernel
from rlx.kernels.reg import Buffer, Reg

__all__ = ["record_fault"]


def record_fault(k: Kernel, cond: Reg, error: Buffer, site: Reg, code: int) -> None:
    """If ``cond``, write ``code`` and ``site`` to the record ``error``, unless it holds a fault.

    The record is two words, code and site. Threads may record at once: each word is one aligned
    store, which does not tear, all threads of a launch write the same site, and any of their codes
    is a right answer.
    """

    def record() -> None:
        k.store(k.cast(site, error.dtype), error, 1)
        k.store(code, error, 0)

    k.when(cond, lambda: k.when(k.compare("eq", k.load(error, 0), 0), record))
