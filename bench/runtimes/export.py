"""The process that writes a case's files for the libraries that read one (by torch)."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from bench.case import Case, Run
from bench.runtimes import EXPORTED
from bench.runtimes.torch import arguments, module

OPSET = 20


def prepare(case: Case, threads: int, folder: Path) -> Run:
    """Write an ONNX file and, where OpenVINO is installed, its own from the same module."""
    torch.set_num_threads(threads)
    m, given, names = module(case, exporting=True), arguments(case), list(case.inputs)
    if not case.traced:
        return _from_code(m, given, names, folder)
    with torch.no_grad():
        if case.runs_on("onnxruntime"):
            torch.onnx.export(
                m, given, str(folder / EXPORTED["onnxruntime"]), input_names=names,
                output_names=["result"], dynamo=False, opset_version=OPSET,
            )  # fmt: skip
        if case.runs_on("openvino"):
            try:
                import openvino as ov
            except ModuleNotFoundError:
                return lambda: ()
            converted = ov.convert_model(m, example_input=given)
            for port, name, a in zip(converted.inputs, names, given, strict=True):
                port.get_tensor().set_names({name})
                port.get_node().set_partial_shape(ov.PartialShape(list(a.shape)))
            converted.validate_nodes_and_infer_types()
            file = str(folder / EXPORTED["openvino"])
            ov.save_model(converted, file, compress_to_fp16=False)
    return lambda: ()


def _from_code(m: Any, given: Any, names: list[str], folder: Path) -> Run:
    """Write the ONNX file that torch makes by ``torch.export``, and OpenVINO's from that."""
    file = str(folder / EXPORTED["onnxruntime"])
    torch.onnx.export(
        m, given, file, input_names=names, dynamo=True, opset_version=OPSET, external_data=False,
        verbose=False,
    )  # fmt: skip
    if find_spec("openvino") is not None:
        import openvino as ov

        converted = str(folder / EXPORTED["openvino"])
        ov.save_model(ov.convert_model(file), converted, compress_to_fp16=False)
    return lambda: ()
