"""The methods and the smaller types of the original system that are not names of ``rlx``, and what
expresses each here. ``docs/names.md`` has the table."""

from __future__ import annotations

from rlx.compat.op_names import Row

__all__ = ["CALLS"]

_STATE = "an option `donate` of the compile pairs the input with its output, which is written over"

CALLS: dict[str, Row] = {
    "Graph.node": Row(("rlx.Graph.node",), "by the number in `nodes()`, or by a value"),
    "Graph.shape": Row(("rlx.Graph.shape_of",)),
    "Graph.users": Row(("rlx.Graph.users",)),
    "Graph.use_count": Row(("rlx.Graph.use_count",)),
    "Graph.topo_order": Row(("rlx.Graph.topo_order",), "the same as `nodes`"),
    "Graph.reverse_topo": Row(("rlx.Graph.reverse_topo",)),
    "Graph.add_node": Row(("rlx.Graph.add_node",), "the type is inferred, and checked if given"),
    "Graph.append_node": Row(("rlx.Graph.append_node",), "the same as `add_node`"),
    "Graph.has_dynamic_dims": Row(("rlx.Graph.has_dynamic_dims",)),
    "Graph.dynamic_symbols": Row(("rlx.Graph.dynamic_symbols",)),
    "Session.compile_hir_with": Row(("rlx.Session.compile_hir_with",)),
    "Session.compile_module_with": Row(("rlx.Session.compile_module_with",)),
    "CompilePipeline.with_supported_ops": Row(("rlx.CompilePipeline.with_supported_ops",)),
    "CompilePipeline.specialize_lir": Row(("rlx.CompilePipeline.specialize_lir",), "from the graph:"
                                          " a schedule has sizes"),
    "CompileResult.specialize": Row(("rlx.CompileResult.specialize",)),
    "GraphDevices.resolve_chain": Row(("rlx.GraphDevices.resolve_chain", "rlx.GraphDevices.chain"),
                                      "one device; `chain` has all that are tried"),
    "CompiledGraph.enable_moe_topk_capture": Row(("rlx.with_expert_outputs",), "the numbers are"
                                                 " outputs of the graph"),
    "CompiledGraph.take_moe_topk_capture": Row(("rlx.ExpertUsage.add",)),
    "CompiledGraph.take_moe_residency_stats": Row(("rlx.ExpertUsage.resident_share",)),
    "rlx_bench.run_benchmark": Row(("rlx.bench.run_benchmark",)),
    "rlx_bench.BenchmarkPattern": Row(("rlx.bench.BenchmarkPattern",)),
    "rlx_optim.NAdamW": Row(("rlx.optim.NAdamW",)),
    "rlx_optim.RAdam": Row(("rlx.optim.RAdam",)),
    "rlx_optim.LAMB": Row(("rlx.optim.Lamb",)),
    "rlx_optim.SOAP": Row(("rlx.optim.Soap",), "exact eigenvectors"),
    "rlx_optim.Sophia": Row(("rlx.optim.Sophia",), "the labels of the data for the Hessian"),
    "rlx_optim.MARS": Row(("rlx.optim.Mars",), "approximate, with AdamW"),
    "Session.compile_graph": Row(("rlx.Session.compile_graph",), "the same as `compile`"),
    "CompiledGraph.set_param_typed": Row(("rlx.CompiledGraph.set_param_typed",)),
    "CompiledGraph.run_typed": Row(("rlx.CompiledGraph.run",), "arrays say their element types"),
    "CompiledGraph.run_raw": Row(("rlx.CompiledGraph.run_slots",), "results are arrays of memory"
                                 " that nothing else writes; `run_into` fills the caller's"),
    "CompiledGraph.arena_ptr": Row(("rlx.CompiledGraph.run_slots",), "its results need no base"),
    "CompiledGraph.bind_handle": Row(("rlx.CompiledGraph.set_input",), "kept, not copied, for the"
                                     " calls that leave the input out"),
    "CompiledGraph.read_handle": Row(("rlx.CompiledGraph.run_in_place",), f"{_STATE} (`out{{i}}`);"
                                     " the array is the caller's own"),
    "CompiledGraph.bind_gpu_handle": Row(("rlx.Session.to_device",), "the array that it gives is an"
                                         " input of any run on the device, by name"),
    "CompiledGraph.has_gpu_handle": Row((), "the program holds its arrays itself"),
    "CompiledGraph.read_gpu_handle": Row(("rlx.runtime.devices.device_array.DeviceArray.numpy",)),
    "CompiledGraph.set_gpu_handle_feed": Row(("rlx.CompiledGraph.run_in_place",), _STATE),
    "CompiledGraph.run_feed_gpu_handle": Row(("rlx.CompiledGraph.run_in_place",), "with arrays of"
                                             " the device in `state`"),
    "CompiledGraph.commit_no_wait": Row(("rlx.CompiledGraph.run_on_device",), "it returns when the"
                                        " device has the work, but for graphs whose steps the host"
                                        " decides or that may fault; on the CPU runs are done when"
                                        " they return"),
    "CompiledGraph.sync_pending": Row(("rlx.drain_device",), "`numpy()` of a result waits as well"),
    "CompiledGraph.run_pipelined": Row(("rlx.CompiledGraph.run_on_device",), "in a loop over the"
                                       " sets, with `numpy()` of the results after it"),
    "CompiledGraph.set_active_extent": Row(("rlx.Graph.input",), "symbolic dims: each size that"
                                           " comes is compiled for, and nothing is padded"),
    "CompiledGraph.clone": Row(("rlx.Session.compile",), "one is safe to call from many threads; a"
                               " second one of its own params is compiled from the cache"),
    "WeightLoader": Row(("rlx.models.safetensors.SafeTensors",), "a mapping of names to arrays,"
                        " read in place; any mapping does, by `set_param`"),
    "BytesWeightLoader": Row(("rlx.CompiledGraph.set_param_typed",)),
}  # fmt: skip
"""By name: what stands for it, and how."""
