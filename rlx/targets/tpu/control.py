"""Control flow in StableHLO: branches and loops, whose bodies are regions.

What can fail in a body is carried through it: the number of the first fault so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlx.ops.control.control import Cond, Scan, WhileLoop
from rlx.targets.graph.tensor import Tensor
from rlx.targets.graph.whole import Body, Loop
from rlx.targets.tpu.text import integers, tensor
from rlx.types import i32, i64

if TYPE_CHECKING:
    from rlx.targets.tpu.hlo import Hlo

__all__ = ["control", "repeat"]


def control(
    k: Hlo, node: Any, args: Sequence[Tensor], bodies: Mapping[str, Body]
) -> Sequence[Tensor]:
    """The results of a branch or a loop."""
    if isinstance(node, Cond):
        return _cond(k, args, bodies)
    if isinstance(node, WhileLoop):
        return _while(k, node, args, bodies)
    assert isinstance(node, Scan), "there is no other control op that runs"
    return _scan(k, node, args, bodies)


def _region(k: Hlo, arguments: Sequence[Tensor], write: Callable[[], Sequence[Tensor]]) -> str:
    """A region, and what it returns."""
    outside, literals = k.lines, dict(k.literals)
    k.lines = []
    results = write()
    inside, k.lines = k.lines, outside
    k.literals = literals  # those inside are not seen here
    listed = ", ".join(f"{a.handle}: {tensor(a.dtype, a.shape)}" for a in arguments)
    head = [f"    ^bb0({listed}):"] if arguments else []
    given = ", ".join(r.handle for r in results)
    types = ", ".join(tensor(r.dtype, r.shape) for r in results)
    end = f'    "stablehlo.return"({given}) : ({types}) -> ()'
    return "\n".join(["{", *head, *inside, end, "    }"])


def _results(
    k: Hlo, name: str, args: Sequence[Tensor], regions: Sequence[str], like: Sequence[Tensor]
) -> list[Tensor]:
    out = k.fresh()
    types = ", ".join(tensor(t.dtype, t.shape) for t in like)
    takes = ", ".join(tensor(t.dtype, t.shape) for t in args)
    given = ", ".join(t.handle for t in args)
    k.lines.append(
        f'    {out}:{len(like)} = "stablehlo.{name}"({given}) ({", ".join(regions)}) :'
        f" ({takes}) -> ({types})"
    )
    return [Tensor(k, f"{out}#{i}", t.dtype, t.shape) for i, t in enumerate(like)]


def _fault(k: Hlo) -> Tensor:
    return k.literal(0, i32) if k.fault is None else k.fault


def _after(k: Hlo, results: list[Tensor]) -> list[Tensor]:
    """The results but the last, which is the fault of the run so far."""
    k.fault = results[-1] if k.sites else None
    return results[:-1]


def _cond(k: Hlo, args: Sequence[Tensor], bodies: Mapping[str, Body]) -> list[Tensor]:
    before, regions, like = _fault(k), list[str](), list[Tensor]()
    for name in ("then", "otherwise"):

        def write(name: str = name) -> list[Tensor]:
            k.fault = before
            found = bodies[name](k, args[1:])
            like[:] = [*found, _fault(k)]
            return list(like)

        regions.append(_region(k, (), write))
    return _after(k, _results(k, "if", args[:1], regions, like))


def _loop(
    k: Hlo, carried: Sequence[Tensor],
    test: Callable[[Sequence[Tensor]], Tensor],
    body: Callable[[Sequence[Tensor]], Sequence[Tensor]],
) -> list[Tensor]:  # fmt: skip
    """A while loop over tensors and the fault of the run."""
    start = [*carried, _fault(k)]

    def named() -> list[Tensor]:
        return [Tensor(k, k.fresh(), t.dtype, t.shape) for t in start]

    of_test, of_body = named(), named()

    def write_test() -> list[Tensor]:
        k.fault = of_test[-1]
        return [test(of_test[:-1])]

    def write_body() -> list[Tensor]:
        k.fault = of_body[-1]
        found = list(body(of_body[:-1]))
        return [*found, _fault(k)]

    regions = [_region(k, of_test, write_test), _region(k, of_body, write_body)]
    return _after(k, _results(k, "while", start, regions, start))


def repeat(k: Hlo, test: Loop, body: Loop, init: Sequence[Tensor]) -> list[Tensor]:
    """A loop of a formula: it goes on while any element does, and those that are done stay."""

    def more(carried: Sequence[Tensor]) -> Tensor:
        on = test(*carried)
        return k.fold("max", on, list(range(on.rank)), False)

    def step(carried: Sequence[Tensor]) -> list[Tensor]:
        on = test(*carried)
        return [k.select(on, n, c) for n, c in zip(body(*carried), carried, strict=True)]

    return _loop(k, init, more, step)


def _while(
    k: Hlo, node: WhileLoop, args: Sequence[Tensor], bodies: Mapping[str, Body]
) -> list[Tensor]:
    n = node.carries
    fixed = list(args[n:])
    rounds = k.literal(0, i64)

    def test(carried: Sequence[Tensor]) -> Tensor:
        (more,) = bodies["test"](k, [*carried[:-1], *fixed])
        more = k.reshape(more, ())
        return more if node.limit < 0 else more & (carried[-1] < node.limit + 1)

    def body(carried: Sequence[Tensor]) -> list[Tensor]:
        if node.limit >= 0:
            k.check(carried[-1] >= node.limit, node.fault)
        found = bodies["body"](k, [*carried[:-1], *fixed])
        return [*found, carried[-1] + 1]

    return _loop(k, [*args[:n], rounds], test, body)[:-1]


def _scan(k: Hlo, node: Scan, args: Sequence[Tensor], bodies: Mapping[str, Body]) -> list[Tensor]:
    n, rounds = node.carries, int(node.rounds)
    at = len(args) - node.scanned
    fixed, scanned = list(args[n:at]), list(args[at:])
    outs = [(v.dtype, v.type.static_shape) for v in node.results[n:]]
    stacks = [k.literal(0, dt, shape) for dt, shape in outs]
    if not rounds:
        return [*args[:n], *stacks]

    def test(carried: Sequence[Tensor]) -> Tensor:
        return carried[0] < rounds

    def body(carried: Sequence[Tensor]) -> list[Tensor]:
        i, state, made = carried[0], carried[1 : 1 + n], carried[1 + n :]
        index = (rounds - 1) - i if node.reverse else i
        elements = [_element(k, t, index) for t in scanned]
        found = bodies["body"](k, [index, *state, *fixed, *elements])
        new = [_put(k, t, v, index) for t, v in zip(made, found[n:], strict=True)]
        return [i + 1, *found[:n], *new]

    found = _loop(k, [k.literal(0, i64), *args[:n], *stacks], test, body)
    return found[1:]


def _element(k: Hlo, t: Tensor, index: Tensor) -> Tensor:
    zero = k.literal(0, i64)
    sizes = (1, *t.shape[1:])
    at = [t, index, *[zero] * (t.rank - 1)]
    box = k.op("dynamic_slice", at, t.dtype, sizes, f"slice_sizes = {integers(sizes)}")
    return k.reshape(box, t.shape[1:])


def _put(k: Hlo, t: Tensor, v: Tensor, index: Tensor) -> Tensor:
    zero = k.literal(0, i64)
    at = [t, k.reshape(v, (1, *v.shape)), index, *[zero] * (t.rank - 1)]
    return k.op("dynamic_update_slice", at, t.dtype, t.shape)
