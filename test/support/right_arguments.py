"""Right arguments of everything that users call, by the names of parameters and by annotations."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx.base.dims import SymDim

__all__ = ["BY_NAME", "BY_TYPE", "F32", "INSTANCES", "World", "folder", "kept"]

F32 = np.float32


class World:
    """Right arguments by the names of parameters and by annotations. What is cheap is made anew for
    every call, so that none sees what another did."""

    def __init__(self) -> None:
        self.graph = g = rlx.Graph("wrong")
        self.x, self.y = g.input("x", [2, 3]), g.input("y", [2, 3])
        g.set_outputs([(self.x * self.y).sum()])
        self.square = g.input("square", [3, 3])
        self.key = g.input("key", [2], "u32")
        self.whole = g.input("whole", [2], "i64")
        self.scalar = self.x.sum()

    def body(self, *values: Any) -> Any:
        return values[0] if len(values) == 1 else values


@cache
def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="rlx-wrong-"))


@cache
def kept() -> dict[str, Any]:
    """What is dear to make, once a process."""
    g = rlx.Graph("kept")
    x, y = g.input("x", [2, 3]), g.input("y", [2, 3])
    w = g.param("w", [3], value=np.ones(3, F32))
    g.set_outputs([((x * w - y) ** 2).sum()])
    session = rlx.Session("interpret")
    fast = rlx.Session("cpu").compile(g)
    path = folder() / "kept.rlx"
    artifact = rlx.compile_artifact(g)
    artifact.save(path)
    rlx.save(g, folder() / "kept.mlir")
    module = rlx.GraphModule.of(g)
    feeds = {"x": np.ones((2, 3), F32), "y": np.ones((2, 3), F32)}
    step = rlx.compile_training(g, rlx.optim.SGD(lr=0.1))
    return {
        "graph": g,
        "session": session,
        "compiled": fast,
        "artifact": artifact,
        "module": module,
        "feeds": feeds,
        "step": step,
        "path": path,
        "text": folder() / "kept.mlir",
        "runner": rlx.GraphDevices(g),
        "pipeline": rlx.CompilePipeline(),
        "batches": rlx.training.Batches(feeds, 1),
        "cache": rlx.SubgraphCache(),
        "compile_cache": rlx.CompileCache(),
        "result": step(feeds),
    }


def csr(w: World) -> Any:
    data, indices, indptr = rlx.sparse.from_dense(np.eye(3, dtype=F32))
    g = w.graph
    return rlx.sparse.CSR(g.constant(data), g.constant(indices), g.constant(indptr), (3, 3))


BY_NAME: dict[str, Callable[[World], Any]] = {
    "wrt": lambda w: "x",
    "path": lambda w: str(folder() / "written"),
    "name": lambda w: "fresh",
    "in_axes": lambda w: ["x"],
    "axis_size": lambda w: 4,
    "axes": lambda w: (0, 1),
    "axis": lambda w: 0,
    "shape": lambda w: (2, 3),
    "perm": lambda w: (1, 0),
    "key": lambda w: w.key,
    "dims": lambda w: {},
    "target": lambda w: "cpu",
    "device": lambda w: "interpret",
    "feeds": lambda w: kept()["feeds"],
    "inputs": lambda w: kept()["feeds"],
    "hint": lambda w: "interpret",
    "chain": lambda w: ["interpret"],
    "candidates": lambda w: ["cpu"],
    "runs": lambda w: 1,
    "optimizer": lambda w: rlx.optim.SGD(lr=0.1),
    "data": lambda w: kept()["batches"],
    "step": lambda w: kept()["step"],
    "steps": lambda w: kept()["step"].position,
    "batch": lambda w: kept()["feeds"],
    "stop": lambda w: 2,
    "init": lambda w: w.x,
    "test": lambda w: lambda *v: w.scalar.gt(0),
    "xs": lambda w: w.x,
    "indices": lambda w: w.whole,
    "pred": lambda w: w.scalar.gt(0),
    "stage": lambda w: "mir",
    "value": lambda w: np.ones(3, F32),
    "outputs": lambda w: [w.x],
    "dtype": lambda w: "f32",
    "dt": lambda w: "f32",
    "arrays": lambda w: kept()["feeds"],
    "size": lambda w: 1,
    "artifact": lambda w: kept()["artifact"],
    "module": lambda w: kept()["module"],
    "source": lambda w: w.graph,
    "text": lambda w: "x",
    "model": lambda w: str(folder() / "none.onnx"),
    "infer": lambda w: lambda x: x,
    "params": lambda w: {},
    "state": lambda w: {},
    "grads": lambda w: {},
    "limit": lambda w: 4,
    "policy": lambda w: None,
    "threads": lambda w: None,
    "call": lambda w: lambda: None,
    "op": lambda w: "mir.add",
    "spec": lambda w: "f32",
    "kind": lambda w: "sum",
}

BY_TYPE: dict[str, Callable[[World], Any]] = {
    "Graph": lambda w: w.graph,
    "Source": lambda w: w.graph,
    "Value": lambda w: w.x,
    "Callable": lambda w: w.body,
    "str": lambda w: "fresh",
    "int": lambda w: 1,
    "float": lambda w: 0.5,
    "Number": lambda w: 0.5,
    "bool": lambda w: True,
    "Session": lambda w: kept()["session"],
    "GraphDevices": lambda w: kept()["runner"],
    "SubgraphCache": lambda w: kept()["cache"],
    "CSR": csr,
    "Camera": lambda w: rlx.splat.Camera(8.0, 8.0, 4.0, 4.0, 8, 8),
    "Artifact": lambda w: kept()["artifact"],
    "DevicePolicy": lambda w: rlx.DevicePolicy(),
    "Sequence": lambda w: [w.x],
    "Iterable": lambda w: [1],
    "Mapping": lambda w: {"x": w.x},
    "bytes": lambda w: b"\0" * 12,
    "Array": lambda w: np.ones(3, F32),
    "Any": lambda w: w.x,
    "Values": lambda w: w.x,
    "DType": lambda w: "f32",
    "TensorType": lambda w: w.x.type,
    "GraphModule": lambda w: kept()["module"],
    "Schedule": lambda w: 0.1,
}


INSTANCES: dict[str, Callable[[World], Any]] = {
    "Graph": lambda w: w.graph,
    "Value": lambda w: w.x,
    "Session": lambda w: kept()["session"],
    "CompiledGraph": lambda w: kept()["compiled"],
    "Artifact": lambda w: kept()["artifact"],
    "GraphDevices": lambda w: kept()["runner"],
    "TrainStep": lambda w: kept()["step"],
    "GraphModule": lambda w: kept()["module"],
    "HirModule": lambda w: kept()["module"],
    "CompilePipeline": lambda w: kept()["pipeline"],
    "DevicePolicy": lambda w: rlx.DevicePolicy(),
    "TensorType": lambda w: w.x.type,
    "DType": lambda w: rlx.f32,
    "Tick": lambda w: rlx.Tick.now(),
    "SubgraphCache": lambda w: kept()["cache"],
    "CompileCache": lambda w: kept()["compile_cache"],
    "Batches": lambda w: kept()["batches"],
    "State": lambda w: kept()["step"].state,
    "SGD": lambda w: rlx.optim.SGD(),
    "Adam": lambda w: rlx.optim.Adam(),
    "CSR": csr,
    "AdamW": lambda w: rlx.optim.AdamW(),
    "Lion": lambda w: rlx.optim.Lion(),
    "Muon": lambda w: rlx.optim.Muon(),
    "Adafactor": lambda w: rlx.optim.Adafactor(),
    "SymDim": lambda w: SymDim.symbol("n"),
    "History": lambda w: rlx.training.History(0),
    "ClipNorm": lambda w: rlx.optim.ClipNorm(1.0),
    "ClipValue": lambda w: rlx.optim.ClipValue(1.0),
    "WarmupCosine": lambda w: rlx.optim.WarmupCosine(0.1, 10),
    "WarmupLinear": lambda w: rlx.optim.WarmupLinear(0.1, 10),
    "Constant": lambda w: rlx.optim.Constant(0.1),
    "StepDecay": lambda w: rlx.optim.StepDecay(0.1, 10),
}
"""What a class's methods are called on."""
