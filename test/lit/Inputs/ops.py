"""Op classes' own samples and refusals as MLIR text, a function each."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from rlx._mlir import ir
from rlx.dialects.bridge import attributes_of, operand_slots
from rlx.dialects.context import make_context
from rlx.dialects.convert import to_attr, to_type
from rlx.errors import RlxError
from rlx.ir.attrs import normalise
from rlx.ir.op import Bad, Op, Sample, placeholders, registry, type_of
from rlx.ops import load_all
from rlx.types import TensorType, f32


def operand_types(cls: type[Op], given: tuple[str | None, ...]) -> list[TensorType | None]:
    dtype = cls.dtypes[0] if cls.dtypes else f32
    types = [None if t is None else type_of(t, dtype) for t in given]
    return types + [None] * (len(cls.operand_fields) - len(types))


def function(
    name: str,
    op: str,
    types: list[TensorType | None],
    results: list[str],
    attrs: dict,
    *,
    note: str = "",
) -> str:
    present = [str(to_type(t)) for t in types if t is not None]
    args = ", ".join(f"%a{i}: {t}" for i, t in enumerate(present))
    names = ", ".join(f"%a{i}" for i in range(len(present)))
    out = ", ".join(f"%r{i}" for i in range(len(results)))
    stored = ", ".join(f"{k} = {v}" for k, v in attrs.items())
    kinds = ", ".join(present)
    return (
        f"func.func @{name}({args}) {{\n{note}"
        f'  {out} = "{op}"({names}) {{{stored}}} : ({kinds}) -> ({", ".join(results)})\n'
        "  return\n}\n"
    )


def samples(dialect: str) -> Iterator[str]:
    for cls in classes(dialect):
        for i, s in enumerate(cls.samples):
            yield sample(cls, s, f"{cls.name.replace('.', '_')}_{i}")


def sample(cls: type[Op], s: Sample, name: str) -> str:
    types = operand_types(cls, s.types)
    node = cls(*placeholders(types), **s.attrs)
    results = [str(to_type(v.type)) for v in node.results]
    return function(name, cls.name, types, results, attributes_of(node))


def refusals(dialect: str) -> Iterator[str]:
    """Functions whose op the verifier must refuse with the message that its class declares.

    What cannot be written as an attribute at all (a name in place of a number) is left out.
    """
    for cls in classes(dialect):
        for i, b in enumerate(cls.bads):
            try:
                yield refusal(cls, b, f"{cls.name.replace('.', '_')}_{i}")
            except RlxError as e:
                print(f"left out: {cls.name} {b}: {e}", file=sys.stderr)


def refusal(cls: type[Op], b: Bad, name: str) -> str:
    types = operand_types(cls, b.types)
    attrs = {}
    for a in cls.attr_fields:
        value = b.attrs.get(a.name, a.default)
        attrs[a.name] = to_attr(normalise(value, a.kind, a.name), a.kind)
    slots = operand_slots(cls, [t is not None for t in types])
    if slots is not None:
        attrs["operandSegmentSizes"] = slots
    results = ["tensor<1xf32>"] * cls.result_count
    note = f"  // expected-error-re@+1 {{{{{cls.name}: {{{{.*{b.match}}}}}}}}}\n"
    return function(name, cls.name, types, results, attrs, note=note)


def classes(dialect: str) -> list[type[Op]]:
    load_all()
    return [c for _, c in sorted(registry.items()) if c.dialect == dialect]


if __name__ == "__main__":
    what, chosen = sys.argv[1:]
    with make_context(), ir.Location.unknown():
        if what == "samples":
            print("\n".join(samples(chosen)))
        else:
            print("// -----\n".join(refusals(chosen)))
