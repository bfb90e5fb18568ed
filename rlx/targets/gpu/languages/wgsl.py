"""WGSL, as WebGPU has it without extensions: numbers of 32 bits.

Integers of 8 and 16 bits are held in an i32, with their sign; in memory they are packed in words,
as half floats are. What a kernel writes so is atomic: other work items write other parts of a word.
Neither infinity nor nan may stand in an expression that a compiler can evaluate, and a compiler may
assume that there are none: both are told by their bits. It may also reorder sums and products, and
nothing forbids it: the result of one goes into another by way of an ``or`` with a zero that no
compiler knows, the number of the group in z.
"""

from __future__ import annotations

from rlx.targets.gpu.language import Language
from rlx.targets.gpu.languages import c_like

__all__ = ["WGSL"]

_NAN = "(bitcast<u32>({a}) & 0x7fffffffu) > 0x7f800000u"

_EXTREME = """\
fn rlx_{name}(a: f32, b: f32) -> f32 {{
    if ((bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u) {{ return a; }}
    if ((bitcast<u32>(b) & 0x7fffffffu) > 0x7f800000u) {{ return b; }}
    if (a == b) {{ return bitcast<f32>(bitcast<u32>(a) {equal} bitcast<u32>(b)); }}
    if (a {order} b) {{ return a; }}
    return b;
}}"""

_FROM_HALF = """\
fn rlx_from_half(h: u32) -> f32 {
    let sign = (h & 0x8000u) << 16u;
    let size = h & 0x7fffu;
    if (size >= 0x7c00u) { return bitcast<f32>(sign | 0x7f800000u | ((size & 0x3ffu) << 13u)); }
    if (size < 0x400u) {
        return bitcast<f32>(sign | bitcast<u32>(f32(size) * 5.9604644775390625e-8f));
    }
    return bitcast<f32>(sign | ((size << 13u) + 0x38000000u));
}"""

# The value was rounded before: no bit is lost here.
_TO_HALF = """\
fn rlx_to_half(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) { return sign | 0x7e00u; }
    if (size >= 0x47800000u) { return sign | 0x7c00u; }
    if (size < 0x38800000u) { return sign | u32(bitcast<f32>(size) * 16777216.0f); }
    return sign | ((size - 0x38000000u) >> 13u);
}"""


def _packed(element: str, bits: int, load: str, value: str) -> dict[str, str]:
    """The rows for elements of which several are in a word."""
    at = {8: "2u", 16: "1u"}[bits]
    mask = f"{(1 << bits) - 1:#x}u"
    shift = f"rlx_shift{bits}({{i}})"
    word = f"{{m}}[{{i}} >> {at}]"
    return {
        f"memref.load.read {element}": load.format(word=word, shift=shift, mask=mask),
        f"memref.load.read_write {element}": load.format(
            word=f"atomicLoad(&{word})", shift=shift, mask=mask
        ),
        f"memref.store.read_write {element}": f"atomicAnd(&{word}, ~({mask} << {shift}));\n"
        f"atomicOr(&{word}, {value} << {shift});",
        f"binding.read_write {element}": "@group(0) @binding({k})"
        " var<storage, read_write> {n}: array<atomic<{t}>>;",
    }


WGSL = Language(
    name="WGSL",
    header="",
    types={
        "i1": "bool", "i8": "i32", "i16": "i32", "i32": "i32", "index": "i32",
        "f16": "f32", "f32": "f32",
    },
    memory={"i8": "u32", "i16": "u32", "f16": "u32"},
    unsigned_types={"i8": "u32", "i16": "u32", "i32": "u32", "index": "u32"},
    unsigned={
        "i1": "u32({e})", "i8": "(bitcast<u32>({e}) & 0xffu)",
        "i16": "(bitcast<u32>({e}) & 0xffffu)", "i32": "bitcast<u32>({e})",
        "index": "bitcast<u32>({e})",
    },
    signed={
        "i8": "bitcast<i32>(({e}) << 24u) >> 24u", "i16": "bitcast<i32>(({e}) << 16u) >> 16u",
        "i32": "bitcast<i32>({e})", "index": "bitcast<i32>({e})",
    },
    literals={
        "true": "true", "false": "false", "i8": "{v}i", "i16": "{v}i", "i32": "{v}i",
        "i8 least": "{v}i", "i16 least": "{v}i", "i32 least": "i32({v})", "index": "{v}i",
        "f32": "{v}f",
    },
    bits={"f32": "rlx_f32({v}u)", "f16": "rlx_from_half({v}u)"},
    rows={
        **c_like.OPERATORS,
        "arith.select": "select({c}, {b}, {a})",
        "arith.minsi": "min({a}, {b})",
        "arith.maxsi": "max({a}, {b})",
        "arith.minui": "u:min({ua}, {ub})",
        "arith.maxui": "u:max({ua}, {ub})",
        "arith.extui i1": "select(0i, 1i, {a})",
        "arith.extsi i1": "select(0i, -1i, {a})",
        "arith.uitofp i1": "select(0.0f, 1.0f, {a})",
        "arith.extui": "bitcast<i32>({ua})",
        "arith.extsi": "{a}",
        "arith.trunci i1": "({ua} & 1u) != 0u",
        "arith.trunci": "u:{ua}",
        "arith.index_cast index": "u:{ua}",
        "arith.index_cast": "{a}",
        "arith.index_castui": "u:{ua}",
        "arith.sitofp": "f32({a})",
        "arith.uitofp": "f32({ua})",
        "arith.fptosi": "i32({a})",
        "arith.fptoui": "u:u32({a})",
        "arith.extf f16>f32": "{a}",
        "arith.truncf f32>f16": "{a}",
        "arith.bitcast i32>f32": "bitcast<f32>({a})",
        "arith.bitcast f32>i32": "bitcast<i32>({a})",
        "arith.cmpf.nan": _NAN,
        # What is written as != some compilers make ordered: false where one is nan.
        "arith.cmpf.une": "!({a} == {b})",
        "math.absf": "abs({a})",
        "math.roundeven": "round({a})",
        **_packed("i8", 8, "rlx_part8({word}, {shift})", "{ua}"),
        **_packed("i16", 16, "rlx_part16({word}, {shift})", "{ua}"),
        **_packed("f16", 16, "rlx_from_half(({word} >> {shift}) & {mask})", "rlx_to_half({a})"),
        "exact": "rlx_exact({e}, group.z)",
        "opaque": "rlx_exact({e}, group.z)",
        "let": "let {n}: {t} = {e};",
        "declare": "var {n}: {t};",
        "var": "var {n}: {t} = {e};",
        "for": "for (var {n}: {t} = {lo}; {n} < {hi}; {n} += {step}) {{",
        "while": "loop {{",
        "private": "var {n}: array<{t}, {count}>;",
        "shared.outside": "var<workgroup> {n}: array<{t}, {count}>;",
        "shared.inside": "",
        "gpu.thread_id.x": "i32(thread.x)",
        "gpu.block_id.x": "i32(group.x)",
        "gpu.block_id.y": "i32(group.y)",
        "gpu.barrier": "workgroupBarrier();",
        "buffer": "{kernel}_b{k}",
        "binding.read": "@group(0) @binding({k}) var<storage, read> {n}: array<{t}>;",
        "binding.read_write": "@group(0) @binding({k}) var<storage, read_write> {n}: array<{t}>;",
        "between": "\n",
        "kernel": "{bindings}\n\n@compute @workgroup_size({x}, {y}, {z})\n"
        "fn {name}(@builtin(local_invocation_id) thread: vec3<u32>,\n"
        "    @builtin(workgroup_id) group: vec3<u32>) {{",
    },
    helpers={
        "rlx_exact": "fn rlx_exact(x: f32, zero: u32) -> f32 {\n"
        "    return bitcast<f32>(bitcast<u32>(x) | zero);\n}",
        "rlx_f32": "fn rlx_f32(bits: u32) -> f32 {\n    return bitcast<f32>(bits);\n}",
        "rlx_shift8": "fn rlx_shift8(i: i32) -> u32 {\n    return 8u * (bitcast<u32>(i) & 3u);\n}",
        "rlx_shift16": "fn rlx_shift16(i: i32) -> u32 {\n"
        "    return 16u * (bitcast<u32>(i) & 1u);\n}",
        "rlx_part8": "fn rlx_part8(word: u32, shift: u32) -> i32 {\n"
        "    return bitcast<i32>(word << (24u - shift)) >> 24u;\n}",
        "rlx_part16": "fn rlx_part16(word: u32, shift: u32) -> i32 {\n"
        "    return bitcast<i32>(word << (16u - shift)) >> 16u;\n}",
        "rlx_from_half": _FROM_HALF,
        "rlx_to_half": _TO_HALF,
        **c_like.extremes(_EXTREME),
    },
    fused=False,
)  # fmt: skip
