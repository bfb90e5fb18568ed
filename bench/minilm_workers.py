"""One process a library: each prepares MiniLM for a shape and then answers with times.

The protocol is lines on standard input ("case 8x128", then "run" again and again) and one JSON
object a line on standard output. Every library gives normalised, mean-pooled embeddings in f32.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Runner = Callable[[], Any]


def inputs(batch: int, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and an all-ones mask; the same for every library."""
    ids = np.random.default_rng(7).integers(1000, 20000, (batch, tokens)).astype(np.int64)
    return ids, np.ones_like(ids)


def torch_encoder(model: str, attention: str = "sdpa") -> Any:
    import torch
    from transformers import AutoModel

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(model, attn_implementation=attention).eval()

        def forward(self, ids: Any, mask: Any) -> Any:
            hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
            weight = mask.unsqueeze(-1).to(hidden.dtype)
            mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
            return mean / mean.norm(dim=1, keepdim=True)

    return Encoder()


def prepare_torch(model: str, ids: Any, mask: Any, threads: int) -> Runner:
    import torch

    torch.set_num_threads(threads)
    encoder, a, b = torch_encoder(model), torch.from_numpy(ids), torch.from_numpy(mask)
    with torch.no_grad():
        encoder(a, b)

    def run() -> Any:
        with torch.no_grad():
            return encoder(a, b).numpy()

    return run


def prepare_inductor(model: str, ids: Any, mask: Any, threads: int) -> Runner:
    import torch
    from torch._inductor import config

    config.freezing = True
    torch.set_num_threads(threads)
    a, b = torch.from_numpy(ids), torch.from_numpy(mask)
    encoder = torch.compile(torch_encoder(model), dynamic=False)

    def run() -> Any:
        with torch.no_grad():
            return encoder(a, b).numpy()

    return run


def onnx_file(model: str, ids: Any, mask: Any) -> str:
    """The model exported for one shape; kept for the run's other workers."""
    import torch

    folder = pathlib.Path(os.environ.get("RLX_BENCH_CACHE", tempfile.gettempdir()))
    path = folder / f"rlx_bench_minilm_{ids.shape[0]}x{ids.shape[1]}.onnx"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        torch.onnx.export(
            torch_encoder(model, "eager"), (torch.from_numpy(ids), torch.from_numpy(mask)),
            str(part), input_names=["ids", "mask"], output_names=["e"], dynamo=False,
            opset_version=17,
        )  # fmt: skip
        part.rename(path)
    return str(path)


def prepare_ort(model: str, ids: Any, mask: Any, threads: int) -> Runner:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(
        onnx_file(model, ids, mask), options, providers=["CPUExecutionProvider"]
    )
    feeds = {i.name: {"ids": ids, "mask": mask}[i.name] for i in session.get_inputs()}
    return lambda: session.run(None, feeds)[0]


def prepare_openvino(model: str, ids: Any, mask: Any, threads: int) -> Runner:
    import openvino as ov

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }  # fmt: skip
    compiled = ov.Core().compile_model(onnx_file(model, ids, mask), "CPU", settings)
    request = compiled.create_infer_request()
    feeds = {i.any_name: {"ids": ids, "mask": mask}[i.any_name] for i in compiled.inputs}
    return lambda: request.infer(feeds)[0]


def prepare_rlx(model: str, ids: Any, mask: Any, threads: int) -> Runner:
    from rlx.models import Embed

    encoder = Embed.from_dir(model, device="cpu", threads=threads)
    return lambda: encoder.encode_ids(ids, mask)


PREPARE: dict[str, Callable[..., Runner]] = {
    "torch": prepare_torch,
    "inductor": prepare_inductor,
    "ort": prepare_ort,
    "openvino": prepare_openvino,
    "rlx": prepare_rlx,
}


def serve(prepare: Callable[[str], Runner]) -> None:
    """Answer the lines of standard input until it ends; ``prepare`` takes the name of a case."""
    out, sys.stdout = sys.stdout, sys.stderr
    run: Runner | None = None
    for line in sys.stdin:
        try:
            answer = {}
            if line.startswith("case"):
                start = time.perf_counter()
                run = prepare(line.split()[1])
                vectors = [run()]
                answer["first_s"] = time.perf_counter() - start
                vectors += [run() for _ in range(3)]
                answer["vectors"] = np.concatenate(
                    [np.atleast_2d(np.asarray(v, np.float64))[:, :16] for v in vectors]
                ).tolist()
            elif run is not None:
                start = time.perf_counter()
                run()
                answer["ms"] = (time.perf_counter() - start) * 1e3
        except Exception as error:  # a peer that fails is reported and left out of the ratio
            answer = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
        out.write(json.dumps(answer) + "\n")
        out.flush()


def main(name: str, model: str, threads: str) -> None:
    """Serve one library."""

    def prepare(case: str) -> Runner:
        batch, tokens = map(int, case.split("x"))
        return PREPARE[name](model, *inputs(batch, tokens), int(threads))

    serve(prepare)


if __name__ == "__main__":
    main(*sys.argv[1:])
