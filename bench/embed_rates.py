"""Sentences per second of a sentence encoder: RLX beside sentence-transformers (PyTorch) and ONNX
Runtime, on the same sentences, with the same model, precision (f32), lengths and threads.

    python bench/embed_rates.py MODEL_DIR --lines 10000 --threads 1

Sentences are of words of the model's vocabulary; their lengths are those of a lognormal
distribution with a median of 14 words. Rounds are interleaved, and the least processor time of each
counts, so that neighbours matter little. ONNX Runtime gets the graph that ``rlx.to_onnx`` writes,
and its own optimisations: through fastembed, which takes texts as they come in batches of 256, and
by hand with what helps it most here, texts sorted by length in batches of 32.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def sentences(folder: str, count: int) -> list[str]:
    """Sentences of whole words of the vocabulary."""
    with open(os.path.join(folder, "vocab.txt"), encoding="utf-8") as f:
        words = [w.strip() for w in f if w.strip().isalpha() and len(w.strip()) > 2]
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(np.log(14), 0.6, count), 2, 120).astype(int)
    return [" ".join(rng.choice(words, n)) for n in lengths]


def of_rlx(folder: str, threads: int) -> Callable[[list[str]], Array]:
    from rlx.models import Embed

    model = Embed.from_dir(folder, "cpu", threads=threads)
    return lambda texts: model.encode(texts, progress=False)


def of_torch(folder: str, threads: int) -> Callable[[list[str]], Array]:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    model = SentenceTransformer(folder, device="cpu")
    return lambda texts: model.encode(
        texts, batch_size=32, normalize_embeddings=True, show_progress_bar=False
    )


def of_onnxruntime(folder: str, threads: int) -> Callable[[list[str]], Array]:
    import onnxruntime
    from tokenizers import Tokenizer

    import rlx
    from rlx.models.embed import encoder_graph

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "model.onnx")
        rlx.to_onnx(encoder_graph(folder), path)
        session = onnxruntime.InferenceSession(path, options)
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "sentence_bert_config.json"), encoding="utf-8") as f:
        tokenizer.enable_truncation(json.load(f)["max_seq_length"])
    tokenizer.enable_padding()

    def encode(texts: list[str]) -> Array:
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        out = np.empty((len(texts), 384), np.float32)
        for at in range(0, len(order), 32):
            chunk = order[at : at + 32]
            found = tokenizer.encode_batch([texts[i] for i in chunk])
            ids = np.array([e.ids for e in found], np.int64)
            mask = np.array([e.attention_mask for e in found], np.int64)
            out[chunk] = session.run(None, {"ids": ids, "mask": mask})[0]
        return out

    return encode


def of_fastembed(folder: str, threads: int) -> Callable[[list[str]], Array]:
    import onnx
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    import rlx
    from rlx.models.embed import encoder_graph

    source, file = ModelSource(hf="none"), "model.onnx"
    TextEmbedding.add_custom_model(  # the graph pools and normalises
        "the model", PoolingType.DISABLED, False, source, 384, model_file=file
    )
    with tempfile.TemporaryDirectory() as place:
        for name in FASTEMBED_READS:
            shutil.copy(os.path.join(folder, name), place)
        path = os.path.join(place, "model.onnx")
        rlx.to_onnx(encoder_graph(folder), path)
        onnx.save(_renamed(onnx.load(path), {"ids": "input_ids", "mask": "attention_mask"}), path)
        model = TextEmbedding("the model", threads=threads, specific_model_path=place)
    return lambda texts: np.stack(list(model.embed(texts)))


FASTEMBED_READS = (
    "config.json", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json",
)  # fmt: skip


def _renamed(model: Any, names: dict[str, str]) -> Any:
    """An ONNX model whose inputs have other names."""
    for value in model.graph.input:
        value.name = names.get(value.name, value.name)
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    return model


ENGINES = {
    "rlx": of_rlx,
    "sentence-transformers": of_torch,
    "fastembed": of_fastembed,
    "onnxruntime": of_onnxruntime,
}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("model")
    p.add_argument("--lines", type=int, default=10000)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    args = p.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    texts = sentences(args.model, args.lines)
    engines = {name: ENGINES[name](args.model, args.threads) for name in args.engines}
    for encode in engines.values():
        encode(texts[: max(32, len(texts) // 10)])  # compiles, and first touches
    least: dict[str, tuple[float, float]] = {}
    results: dict[str, Array] = {}
    for _ in range(args.rounds):
        for name, encode in engines.items():
            wall, cpu = time.perf_counter(), time.process_time()
            results[name] = encode(texts)
            took = time.process_time() - cpu, time.perf_counter() - wall
            least[name] = min(least.get(name, took), took)
    for name, (cpu, wall) in least.items():
        gap = float(np.abs(results[name] - results[args.engines[0]]).max())
        print(
            f"{name:22s} {args.lines / cpu:8.1f} sentences per second of processor time,"
            f" {args.lines / wall:8.1f} of wall time, greatest difference {gap:.1e}"
        )


if __name__ == "__main__":
    main()
