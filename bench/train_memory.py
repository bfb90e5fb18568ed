"""``python -m bench.train_memory``: the memory of the decoder's step of ``bench train``, by what is
kept for the backward pass, and what PyTorch saves for it, where it is installed.

RLX's figure is the whole arena: saved values and all that lies in memory beside them. PyTorch's is
the storages that its autograd saves, each once, without the weights; its temporaries come on top.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import rlx
from bench.train_cases import CASES
from bench.train_rlx import Region, step_graph

__all__ = ["arenas", "saved_by_torch"]

REGIONS: dict[str, Region] = {
    "all": lambda block: block,
    "products": partial(rlx.checkpoint, policy="products"),
    "operands of blocks": rlx.checkpoint,
}
"""What is kept, and how the blocks are marked for it."""


def arenas(name: str = "decoder") -> dict[str, int]:
    """Bytes of the step's arena by what is kept."""
    return {
        kept: rlx.compile_artifact(step_graph(CASES[name], region)).variants[0].arena_bytes
        for kept, region in REGIONS.items()
    }


def saved_by_torch(name: str = "decoder") -> int:
    """Bytes that PyTorch's eager step saves for its backward pass."""
    import torch

    from bench.train_peers import torch_loss

    case = CASES[name]
    weights = {n: torch.from_numpy(v).requires_grad_() for n, v in case.weights().items()}
    x, labels = map(torch.from_numpy, case.data())
    given = {w.untyped_storage().data_ptr() for w in weights.values()}
    found: dict[int, Any] = {}

    def pack(t: Any) -> Any:
        storage = t.untyped_storage()
        if storage.data_ptr() not in given:
            found[storage.data_ptr()] = storage  # kept, so that no other takes its address
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        torch_loss(case, weights, x, labels)
    return sum(s.nbytes() for s in found.values())


def main() -> None:
    """Print both."""
    for kept, size in arenas().items():
        print(f"rlx, kept: {kept:20} {size / 1e6:6.1f} MB")
    try:
        print(f"torch saves {saved_by_torch() / 1e6:24.1f} MB")
    except ImportError as e:
        print(f"torch: {e}")


if __name__ == "__main__":
    main()
