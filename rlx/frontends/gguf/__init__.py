"""GGUF files: metadata and tensors in GGML's formats, read as views of the map, and written.

values.py   the kinds of values, and a cursor over bytes that checks every step
tensor.py   a tensor: its scheme, its shape and its bytes
reader.py   a file, or the parts of a split one
writer.py   a file of tensors and metadata
"""

from __future__ import annotations

from rlx.frontends.gguf.reader import GGUF, read
from rlx.frontends.gguf.tensor import Tensor
from rlx.frontends.gguf.writer import write

__all__ = ["GGUF", "Tensor", "read", "write"]
