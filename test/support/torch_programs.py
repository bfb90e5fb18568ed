"""Random programs of torch with views and writes in place, as they are and under
``torch.compile(backend="rlx")``: torch itself is the oracle.

A program is lines of Python, of which each works on what the lines before have left. What a program
gives is written once more afterwards, so that it shows which results share a memory.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from linecache import cache as sources
from typing import Any

import torch

import rlx.frontends.torch.backend as ours
from rlx.errors import RlxError

__all__ = ["Program", "difference"]

MOST = 2000
"""Elements of a result."""

VIEWS = (
    "{x}.transpose(0, -1)", "{x}.t()", "{x}[1:]", "{x}[::2]", "{x}[0]", "{x}.reshape(-1)",
    "{x}[..., {x}.shape[-1] // 2:]", "{x}[:{x}.shape[0] - 1]", "{x}.unsqueeze(0)", "{x}.diagonal()",
    "{x}.chunk(2, -1)[0]", "{x}.view({x}.shape[0], -1)", "{x}.detach()", "{x}.select(-1, 0)",
    "{x}.narrow(0, 1, 1)", "{x}.split(2)[-1]", "{x}.movedim(0, -1)", "{x}.expand_as({y})",
    "{x}.unfold(0, 2, 1)", "{x}.squeeze()", "{x}.view(torch.int32).view(torch.float32)",
    "{x}.unbind(0)[1]", "{x}.expand(2, *{x}.shape)", "{x}.contiguous()", "{x}.flatten()", "{x}.mT",
    "{x}.as_strided((2, 2), (1, 1))",
)  # fmt: skip
NEW = (
    "{x}.clone()", "{x} + {y}", "{x} * 2", "{x}.t() * 2", "torch.where({x} > 0, {x}, -{x})",
    "{x}.sum(-1)", "{x}.cumsum(-1)", "{x}.flip(0)", "{x}.sort(-1).values", "{x}.roll(1, 0)",
    "{x}.max(-1)[0]", "{x}.argmax(-1).float()", "{x}.tril()", "{x}.bfloat16().float()",
    "{x}.gather(-1, torch.zeros_like({x}, dtype=torch.int64))", "torch.cat([{x}, {y}])",
    "{x} @ {y}", "torch.stack([{x}, {x}])", "{x}.new_zeros({x}.shape) + {x}",
)  # fmt: skip
WRITES = (
    "{x}.add_(1)", "{x}.mul_({x}.mean())", "{x}[0] = 0.5", "{x}[-1] = {y}[-1] * 2",
    "{x}[1::2] = {y}.mean()", "{x}[:1] += {c}", "{x}.copy_({y})", "{x}.clamp_(-1, 1)",
    "{x}.masked_fill_({x} > 0.5, {c})", "{x}.index_add_(0, torch.tensor([0, 0]), {y}[:2])",
    "{x}.scatter_(0, torch.zeros((1,) * {x}.dim(), dtype=torch.int64), {c})", "{x}.neg_()",
    "{x}.t_()", "{x}.zero_()", "{x}.fill_diagonal_({c})", "{x}.lerp_({y}, 0.5)", "{x}.tril_()",
    "{x}.index_copy_(0, torch.tensor([1]), {y}[:1])", "torch.add({x}, {y}, out={x})",
    "{x}.squeeze_()", "{x}.unsqueeze_(-1)", "{x}.addcmul_({y}, {y}, value=0.5)", "{x}.sigmoid_()",
    "{x}[..., 0] = {y}[..., 0]", "{x}[{x}.shape[0] // 2:] *= {c}",
    "{x}.index_put_((torch.tensor([0, 0]),), torch.tensor({c}), accumulate=True)",
)  # fmt: skip
BREAK = "torch._dynamo.graph_break()"
OTHER = "aot_eager"
"""The backend of torch's own that runs the graphs as they are."""


class Program:
    """The program of a number: its source, whether its sizes are symbols, and whether its arguments
    require gradients."""

    def __init__(self, seed: int) -> None:
        choice = random.Random(seed)
        self.seed = seed
        self.dynamic, self.trained = choice.random() < 0.4, choice.random() < 0.25
        names, lines = ["v0", "v1", "v2"], list[str]()
        values: dict[str, Any] = dict(zip(names, self.arguments(), strict=True)) | {"torch": torch}
        if self.trained or choice.random() < 0.4:
            lines += [f"{n} = {n} * 1" for n in names]
        for line in lines:
            exec(line, values)
        for _ in range(choice.randint(3, 10)):
            kind = choice.choice([VIEWS, VIEWS, NEW, WRITES, WRITES])
            line = choice.choice(kind).format(
                x=choice.choice(names), y=choice.choice(names), c=choice.choice([0.5, 2.0, -1.25])
            )
            name = f"v{len(names)}"
            line = line if kind is WRITES else f"{name} = {line}"
            try:
                exec(line, values)
            except (RuntimeError, IndexError, ValueError):
                continue
            if kind is not WRITES:
                if values[name].numel() > MOST:
                    continue
                names.append(name)
            lines.append(line)
            lines += [BREAK] if choice.random() < 0.05 else []
        given = names if choice.random() < 0.3 or len(names) == 3 else names[3:]
        self.source = "\n    ".join(["def f(v0, v1, v2):", *lines, f"return {', '.join(given)},\n"])
        place = f"<program {seed}>"
        sources[place] = len(self.source), None, self.source.splitlines(True), place
        exec(compile(self.source, place, "exec"), values)
        self.run = values["f"]

    def arguments(self) -> list[Any]:
        """Tensors of their own memory, the same at each call."""
        shapes, made = ((3, 4), (4,), (2, 3, 4)), torch.Generator().manual_seed(self.seed)
        drawn = [torch.randn(s, generator=made) for s in shapes]
        return [t.requires_grad_() for t in drawn] if self.trained else drawn

    def results(self, run: Any, written: list[int] | None = None) -> tuple[list[Any], list[int]]:
        """What the arguments and results are after a call, then after a write to each result of the
        numbers ``written``, and the gradients of the arguments; and these numbers, which are those
        of all results but where several elements lie in one place."""
        arguments = self.arguments()
        given = list(run(*arguments))
        held, found = [*arguments, *given], list[Any]()
        slopes = [t for t in given if t.requires_grad]
        if slopes:
            weighted = [(t * torch.arange(t.numel()).view(t.shape)).sum() for t in slopes]
            sum(weighted).backward()
            found += [t.grad for t in arguments if t.grad is not None]
        found += [t.detach().clone() for t in held]
        with torch.no_grad():
            if written is None:
                written = [n for n, t in enumerate(given) if not _overlaps(t)]
            for n in written:
                given[n].detach().mul_(n + 2)
                found += [t.detach().clone() for t in held]
        return found, written


def _overlaps(t: Any) -> bool:
    """Whether several elements lie in one place: what a write does then is not said."""
    places = torch.zeros(t.shape, dtype=torch.int64)
    for axis, (size, stride) in enumerate(zip(t.shape, t.stride(), strict=True)):
        shape = [size if i == axis else 1 for i in range(t.dim())]
        places = places + (torch.arange(size) * stride).view(shape)
    return len(places.unique()) < places.numel()


def difference(program: Program, backend: Any = ours.backend) -> str | None:
    """What tells the results under ``torch.compile`` from those of torch; None if nothing does or
    torch refuses the program. RLX's own errors are raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wanted, written = program.results(program.run)
        except RuntimeError:
            return None  # such as a gradient through what was written
        torch._dynamo.reset()
        run = torch.compile(program.run, backend=backend, dynamic=program.dynamic)
        try:
            found, _ = program.results(run, written)
        except Exception as e:
            if "by .clone()" in str(e) or backend is OTHER:
                return None  # what RLX says that it lacks, and what torch refuses
            if not _is_ours(e) and _refuses(program):
                return None
            raise
        wrong = _apart(found, wanted)
        if wrong and backend is not OTHER and difference(program, OTHER):
            return None  # what torch's own compiler gives is not what torch does
        return wrong


def _is_ours(e: BaseException | None) -> bool:
    """Whether an error, or one that it came of, is RLX's own."""
    return e is not None and (isinstance(e, RlxError) or _is_ours(e.__cause__ or e.__context__))


def _refuses(program: Program) -> bool:
    """Whether torch's own compiler, too, raises for a program."""
    torch._dynamo.reset()
    try:
        program.results(torch.compile(program.run, backend=OTHER, dynamic=program.dynamic))
    except Exception:
        return True
    return False


def _apart(found: Sequence[Any], wanted: Sequence[Any]) -> str | None:
    if len(found) != len(wanted):
        return f"{len(found)} tensors, where torch has {len(wanted)}"
    for n, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"tensor {n} is {a.dtype}{list(a.shape)}, torch has {b.dtype}{list(b.shape)}"
        if not torch.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True):
            return f"tensor {n} is {a.flatten()[:6]}, where torch has {b.flatten()[:6]}"
    return None
