"""Many ranks: graphs that run together and exchange tensors.

A mesh (``rlx.Mesh``) gives ranks names along its axes, and collectives are ops that take such an
axis. ``interpret`` is the reference, which runs all ranks at once.
"""

from __future__ import annotations

from rlx.distributed.reference import interpret

__all__ = ["interpret"]
