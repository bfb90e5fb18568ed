"""HLSL, shader model 5 and later. ``precise`` keeps sums and products as they were rounded.

Its fused product and sum is ``mad``, which a driver may round twice, as it may in WGSL.
"""

from __future__ import annotations

from rlx.targets.gpu.languages import words

__all__ = ["HLSL"]

HLSL = words.language(
    name="HLSL",
    header="",
    f="asfloat",
    rows={
        **words.rows("asint", "asfloat", "InterlockedAnd", "InterlockedOr"),
        "math.roundeven": "round({a})",
        "opaque": "asfloat(asuint({e}) | group_number.z)",
        "math.fma": "mad({a}, {b}, {c})",
        "let": "precise {t} {n} = {e};",
        "gpu.thread_id.x": "int(thread_number.x)",
        "gpu.block_id.x": "int(group_number.x)",
        "gpu.block_id.y": "int(group_number.y)",
        "gpu.barrier": "GroupMemoryBarrierWithGroupSync();",
        "shared.outside": "groupshared {t} {n}[{count}];",
        "shared.inside": "",
        "buffer": "{kernel}_b{k}",
        "binding.read": "StructuredBuffer<{t}> {n} : register(t{k});",
        "binding.read_write": "RWStructuredBuffer<{t}> {n} : register(u{k});",
        "between": "\n",
        "kernel": "{bindings}\n\n[numthreads({x}, {y}, {z})]\n"
        "void {name}(uint3 thread_number : SV_GroupThreadID, uint3 group_number : SV_GroupID) {{",
    },
    helpers=words.helpers("asfloat", "asuint"),
)
