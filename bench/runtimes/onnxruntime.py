"""ONNX Runtime on the file that torch exported."""

from __future__ import annotations

from pathlib import Path

import onnxruntime

from bench.case import Case, Run
from bench.runtimes import EXPORTED


def prepare(case: Case, threads: int, folder: Path) -> Run:
    """A session with all optimisations, which is the default."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    file = str(folder / EXPORTED["onnxruntime"])
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    feeds = case.feeds()
    feeds = {i.name: feeds[i.name] for i in session.get_inputs()}
    return lambda: session.run(None, feeds)[0]
