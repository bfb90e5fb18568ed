"""OpenVINO on the model that it converted from torch."""

from __future__ import annotations

from pathlib import Path

import openvino

from bench.case import Case, Run
from bench.runtimes import EXPORTED


def prepare(case: Case, threads: int, folder: Path) -> Run:
    """A request in the case's precision, for the latency of one call; nothing is copied around
    it."""
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": case.precision,
    }
    file = str(folder / EXPORTED["openvino"])
    compiled = openvino.Core().compile_model(file, "CPU", settings)
    request, feeds = compiled.create_infer_request(), case.feeds()
    feeds = {port.any_name: feeds[port.any_name] for port in compiled.inputs}
    return lambda: request.infer(feeds, share_inputs=True, share_outputs=True)[0]
