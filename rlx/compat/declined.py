"""Names of the original that are declined, with reasons; and differences of its examples."""

from __future__ import annotations

__all__ = ["DECLINED", "DIFFERENCES"]

DECLINED: dict[str, str] = {
    "`Result`": "Python raises errors; a call gives its value or an RlxError",
    "`DeviceArena`":
        "a fused value has no slot, and inputs, outputs and params lie in memory of the"
        " caller (`run_into`, `to_device`); `rlx.inspect_lir` lists what the arena "
        "holds, and where",
    "`Graph.node_mut`":
        "nodes never change, so that a compiled graph stays what it was: "
        "`op.with_operands` makes another, and `set_outputs` says which are used",
    "a name in `Graph.append_node`": "a node is known by its line in the user's code",
    "`CompileOptions.dce`": "a graph is what its outputs reach",
    "`CompileOptions.arena_alignment`":
        "it is 64, a cache line and the widest vector, on which kernels rely",
    "`blas-accelerate`, `blas-mkl`, `blas-openblas`":
        "every product is a kernel of RLX's own, which fuses with what is around it; a "
        "library would take the place of none, and give other bits",
    "`CompiledGraph.set_moe_resident_experts`":
        "the weights of a compiled graph lie in one memory, that of its device; "
        "`rlx.ExpertUsage` counts what other placements would hold",
    "`BackendsManifest`":
        "nothing is chosen as RLX is built: `rlx devices` and `rlx doctor` say what is "
        "here, and `rlx.available_devices()` in a program",
    "`rlx-flow`":
        "a model is a function that makes a graph, and `rlx.CompileOptions` its profile",
    "`rlx-umap`, `rlx-rl`, `rlx-bbo`, `rlx-fdm`":
        "applications: none needs what others could not have (`rlx.custom_op`, "
        "`rlx.grad`, `rlx.optim`), and a compiler is no place for them",
    "op counts of `FusionReport` by field":
        "`report.before` and `report.after` count every op by name; `nodes_before`, "
        "`matmul_before` and their like are there",
}  # fmt: skip
"""By name: why not, and what is there instead."""

DIFFERENCES: dict[str, str] = {
    "`Device::Cpu`, `DType::F32`":
        "`Device.CPU`, `DType.F32`: members are written as Python's are",
    "`g.matmul(x, w, shape)`":
        "`g.matmul(x, w)`: types are inferred; `g.add_node` takes one to check",
    "`run(&[(\"x\", &data)])`":
        "`run({\"x\": data})`: Python's form of values by name. A flat list is taken for "
        "any sizes; an array has a shape of its own, and a wrong one is an error",
    "an unavailable device panics with a Cargo feature":
        "a DeviceError says what the driver says, and what to install: nothing is "
        "chosen as RLX is built",
    "`run_try` of an empty chain names the CPU": "it names no device, as none was tried",
    "`run_try` with wrong inputs tries the next device":
        "they are raised at once: they are wrong on every device",
    "`compile_chain` gives the compiled graph": "and its device, which a chain leaves open",
    "`OpenGl` supports nothing": "it is a device here, where its driver finds one",
    "`first_unsupported_op` of a graph without outputs":
        "a GraphError: such a graph computes nothing",
    "`devices_for(graph)`":
        "it has the interpreter too, which runs every graph; `GraphDevices` takes it "
        "only where a policy names it",
    "`supports_run_slots`": "true of every device that RLX has a backend for, so not of MLX",
    "legalising needs no driver": "nor here, for every target; MLX, ANE and TPU are none",
    "`Session::policy()` is None without one":
        "`session.policy` is the one that holds, ALWAYS_F32",
    "a precision works for every module":
        "an UnsupportedError for one with fused regions and for lir, whose types are "
        "fixed; the original does not apply it",
    "`compile` takes a MIR graph": "a graph is hir: what has no blocks is mir as it is",
    "`compile_hir(graph)`":
        "a GraphError: `compile` takes graphs, and `GraphModule.of` makes a module",
    "`rlx.fft(x)`": "`x.fft()`: ops are methods; the name in `rlx` is the op's class",
    "`Tick - Tick` is a Duration": "a `timedelta`, to a microsecond; `elapsed_ns` is exact",
    "`with_benchmark_pick(0)` is one run":
        "it is the model of costs; `DevicePickStrategy(runs=0)`",
}  # fmt: skip
"""What the original does, and what RLX does there, with the reason."""
