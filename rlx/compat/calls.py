"""The methods and the smaller types of the original system that are not names of ``rlx``, and what
expresses each here. ``docs/names.md`` has the table."""

from __future__ import annotations

from rlx.compat.op_names import Row

__all__ = ["CALLS"]

_STATE = "an option `donate` of the compile pairs the input with its output, which is written over"

CALLS: dict[str, Row] = {
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
    "CommandStream": Row(("rlx.CompiledGraph.run_on_device", "rlx.drain_device"), "runs of a"
                         " device are in order; the second waits for them"),
    "WeightLoader": Row(("rlx.models.safetensors.SafeTensors",), "a mapping of names to arrays,"
                        " read in place; any mapping does, by `set_param`"),
    "BytesWeightLoader": Row(("rlx.CompiledGraph.set_param_typed",)),
}  # fmt: skip
"""By name: what stands for it, and how."""
