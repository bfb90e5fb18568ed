"""CUDA C++ and HIP C++, which differ in a header.

Both are to be compiled with --fmad=false (-ffp-contract=off): a product and a sum stay two
roundings unless a kernel asks for one.
"""

from __future__ import annotations

from dataclasses import replace

from rlx.targets.gpu.language import Language
from rlx.targets.gpu.languages import c_like

__all__ = ["CUDA", "HIP"]

_EXTREME = """\
static __device__ {t} rlx_{name}({t} a, {t} b) {{
    if (a == b) {{
        return __{i}_as_{t}(__{t}_as_{i}(a) {equal} __{t}_as_{i}(b));
    }}
    return (a != a || a {order} b) ? a : b;
}}"""


_FUNCTIONS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "absf": "fabs", "roundeven": "rint"}

CUDA = Language(
    name="CUDA C++",
    header="#include <cuda_fp16.h>",
    types={
        "i1": "bool", "i8": "signed char", "i16": "short", "i32": "int", "i64": "long long",
        "index": "int", "f16": "__half", "f32": "float", "f64": "double",
    },
    unsigned_types={
        "i8": "unsigned char", "i16": "unsigned short", "i32": "unsigned", "index": "unsigned",
        "i64": "unsigned long long",
    },
    unsigned={
        "i1": "(unsigned){e}", "i8": "(unsigned)(unsigned char){e}",
        "i16": "(unsigned)(unsigned short){e}", "i32": "(unsigned){e}", "index": "(unsigned){e}",
        "i64": "(unsigned long long){e}",
    },
    signed={
        "i8": "(signed char)({e})", "i16": "(short)({e})", "i32": "(int)({e})",
        "i64": "(long long)({e})", "index": "(int)({e})",
    },
    literals={
        **c_like.LITERALS,
        **c_like.long_literals("LL"),
        "f64": "{v}",
    },
    bits={
        "f16": "__ushort_as_half({v})", "f32": "__int_as_float({v})",
        "f64": "__longlong_as_double({v}LL)",
    },
    rows={
        **c_like.rows(lambda t, e: f"({t}){e}"),
        **{f"math.{op} f32": f"{name}f({{a}})" for op, name in _FUNCTIONS.items()},
        "math.fma f32": "fmaf({a}, {b}, {c})",
        "arith.bitcast i32>f32": "__int_as_float({a})",
        "arith.bitcast f32>i32": "__float_as_int({a})",
        "arith.bitcast i64>f64": "__longlong_as_double({a})",
        "arith.bitcast f64>i64": "__double_as_longlong({a})",
        "arith.bitcast i16>f16": "__short_as_half({a})",
        "arith.bitcast f16>i16": "__half_as_short({a})",
        "arith.extf f16>f32": "__half2float({a})",
        "arith.truncf f32>f16": "__float2half_rn({a})",
        "arith.maximumf f64": "rlx_maximum_double({a}, {b})",
        "arith.minimumf f64": "rlx_minimum_double({a}, {b})",
        "gpu.thread_id.x": "(int)threadIdx.x",
        "gpu.block_id.x": "(int)blockIdx.x",
        "gpu.block_id.y": "(int)blockIdx.y",
        "gpu.barrier": "__syncthreads();",
        "shared.inside": "__shared__ {t} {n}[{count}];",
        "shared.outside": "",
        "buffer": "b{k}",
        "binding.read": "const {t}* {n}",
        "binding.read_write": "{t}* {n}",
        "between": ", ",
        "kernel": 'extern "C" __global__ void __launch_bounds__({x}) {name}({bindings}) {{',
    },
    helpers={
        **c_like.extremes(_EXTREME, t="float", i="int"),
        **c_like.extremes(_EXTREME, "_double", t="double", i="longlong"),
    },
)  # fmt: skip

HIP = replace(CUDA, name="HIP C++", header="#include <hip/hip_runtime.h>\n"
              "#include <hip/hip_fp16.h>")  # fmt: skip
