"""The operations that cases are written in, with what is the same for all array libraries."""

from __future__ import annotations

from typing import Any


class Ops:
    """Operations on the tensors of a library, besides ``+ - * /`` and indexing.

    Rows are ``[batch, tokens, heads * dim]``, heads ``[batch, heads, tokens, dim]``.
    """

    xp: Any
    """The library's module of array functions."""

    def linear(self, x: Any, w: Any, b: Any = None) -> Any:
        """``x w + b`` with a weight of a Tensor of that kind."""
        return x @ w if b is None else x @ w + b

    def matmul(self, a: Any, b: Any) -> Any:
        """The product of two inputs."""
        return a @ b

    def concat(self, parts: list[Any], axis: int) -> Any:
        """Tensors joined along an axis."""
        return self.xp.concatenate(parts, axis)

    def gather(self, table: Any, ids: Any) -> Any:
        """Rows of a table."""
        return table[ids]

    def relu(self, x: Any) -> Any:
        """The positive part."""
        raise NotImplementedError

    def gelu(self, x: Any) -> Any:
        """Gelu by the error function."""
        raise NotImplementedError

    def gelu_tanh(self, x: Any) -> Any:
        """Gelu by its approximation with tanh."""
        raise NotImplementedError

    def silu(self, x: Any) -> Any:
        """``x sigmoid(x)``."""
        raise NotImplementedError

    def softmax(self, x: Any) -> Any:
        """Softmax of the last axis."""
        raise NotImplementedError

    def layer_norm(self, x: Any, gamma: Any, beta: Any, eps: float = 1e-5) -> Any:
        """Layer normalisation of the last axis."""
        raise NotImplementedError

    def rms_norm(self, x: Any, gamma: Any, eps: float = 1e-5) -> Any:
        """Division by the root of the mean square of the last axis."""
        raise NotImplementedError

    def attention(self, q: Any, k: Any, v: Any, causal: bool = False) -> Any:
        """Attention on heads; key heads may be fewer than query heads."""
        raise NotImplementedError

    def conv2d(self, x: Any, w: Any, b: Any, stride: int, padding: int, groups: int) -> Any:
        """Convolution of ``[batch, channels, height, width]``."""
        raise NotImplementedError

    def flat(self, x: Any) -> Any:
        """All elements as a vector."""
        return x.reshape(-1)

    def copied_transpose(self, x: Any) -> Any:
        """The transpose of a matrix, in memory of its own."""
        return self.xp.transpose(x)

    def pad(self, x: Any, rows: int, columns: int) -> Any:
        """A matrix with so many zeros before and after each axis."""
        return self.xp.pad(x, ((rows, rows), (columns, columns)))

    def tile(self, x: Any, counts: tuple[int, ...]) -> Any:
        """The tensor so often along each axis."""
        return self.xp.tile(x, counts)

    def cast(self, x: Any, dtype: str) -> Any:
        """The elements as another type, by NumPy's name of it."""
        return x.astype(dtype)

    def cumsum(self, x: Any, axis: int) -> Any:
        """The running sums along an axis."""
        return self.xp.cumsum(x, axis)

    def take(self, x: Any, ids: Any, axis: int) -> Any:
        """The elements at a vector of indices along an axis."""
        return self.xp.take(x, ids, axis)

    def take_along(self, x: Any, ids: Any, axis: int) -> Any:
        """The elements along an axis by an index of their own each."""
        return self.xp.take_along_axis(x, ids, axis)

    def scatter_add(self, x: Any, ids: Any) -> Any:
        """Zeros, to whose rows at the indices those of ``x`` are added."""
        raise NotImplementedError

    def sort(self, x: Any) -> Any:
        """The elements of each row in ascending order."""
        return self.xp.sort(x, -1)

    def topk(self, x: Any, k: int) -> Any:
        """The k greatest elements of each row, in descending order."""
        raise NotImplementedError

    def resize(self, x: Any, sizes: tuple[int, int]) -> Any:
        """Images ``[batch, channels, height, width]`` of other sizes, by linear interpolation
        between the centres of elements, without smoothing."""
        raise NotImplementedError

    def mean_pool(self, x: Any, size: int, stride: int) -> Any:
        """The means of the windows of such images, without padding."""
        raise NotImplementedError

    def heads(self, x: Any, count: int) -> Any:
        """Rows as heads."""
        batch, tokens, width = x.shape
        return x.reshape(batch, tokens, count, width // count).swapaxes(1, 2)

    def rows(self, x: Any) -> Any:
        """Heads as rows."""
        batch, heads, tokens, dim = x.shape
        return x.swapaxes(1, 2).reshape(batch, tokens, heads * dim)

    def row_attention(
        self, q: Any, k: Any, v: Any, heads: int, key_heads: int, causal: bool = False
    ) -> Any:
        """Attention on rows."""
        k, v = self.heads(k, key_heads), self.heads(v, key_heads)
        return self.rows(self.attention(self.heads(q, heads), k, v, causal))

    def rope(self, x: Any, cos: Any, sin: Any, heads: int) -> Any:
        """The halves of every head of rows turned by angles, tables ``[tokens, dim / 2]``."""
        batch, tokens, width = x.shape
        half = width // heads // 2
        x = x.reshape(batch, tokens, heads, 2 * half)
        a, b, c, s = x[..., :half], x[..., half:], cos[:, None, :], sin[:, None, :]
        return self.concat([a * c - b * s, b * c + a * s], -1).reshape(batch, tokens, width)


class Formulas(Ops):
    """The operations by their definitions, on NumPy's functions."""

    def relu(self, x: Any) -> Any:
        return self.xp.maximum(x, 0)

    def silu(self, x: Any) -> Any:
        return x / (1 + self.xp.exp(-x))

    def gelu_tanh(self, x: Any) -> Any:
        return x * 0.5 * (1 + self.xp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))

    def softmax(self, x: Any) -> Any:
        e = self.xp.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def layer_norm(self, x: Any, gamma: Any, beta: Any, eps: float = 1e-5) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x / self.xp.sqrt((x * x).mean(-1, keepdims=True) + eps) * gamma + beta

    def rms_norm(self, x: Any, gamma: Any, eps: float = 1e-5) -> Any:
        return x / self.xp.sqrt((x * x).mean(-1, keepdims=True) + eps) * gamma

    def attention(self, q: Any, k: Any, v: Any, causal: bool = False) -> Any:
        batch, heads, queries, dim = q.shape
        key_heads, keys = k.shape[1:3]
        q = q.reshape(batch, key_heads, heads // key_heads, queries, dim)
        scores = q @ k[:, :, None].swapaxes(-1, -2) * dim**-0.5
        if causal:
            hidden = self.xp.arange(keys) > self.xp.arange(queries)[:, None] + keys - queries
            scores = self.xp.where(hidden, -self.xp.inf, scores)
        return (self.softmax(scores) @ v[:, :, None]).reshape(batch, heads, queries, dim)
