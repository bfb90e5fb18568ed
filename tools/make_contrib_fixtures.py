"""Write test/frontends/fixtures/contrib.npz: what ONNX Runtime gives for the nodes of
``test/support/contrib_cases.py``.

It needs the onnxruntime package, which tests do not:

    python tools/make_contrib_fixtures.py
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "test"))


def main() -> None:
    """Run every node."""
    runtime: Any = importlib.import_module("onnxruntime")
    cases: Any = importlib.import_module("support.contrib_cases")
    found: dict[str, Any] = {}
    for name, case in cases.CASES.items():
        session = runtime.InferenceSession(
            cases.model_of(case).SerializeToString(), providers=["CPUExecutionProvider"]
        )
        feeds = cases.feeds_of(case)
        for i, a in enumerate(session.run(None, feeds)):
            found[f"{name}/{i}"] = np.asarray(a)
    path = ROOT / "test" / "frontends" / "fixtures" / "contrib.npz"
    np.savez_compressed(path, **found)
    print(f"wrote {len(found)} results to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
