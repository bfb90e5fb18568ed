"""The examples of training run, at a small size; and the decoder learns as its twin in PyTorch."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples" / "training"


def run(name: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *args],
        capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    if done.returncode and "the model is not installed" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("name", "least"), [("digits_mlp.py", 0.9), ("digits_cnn.py", 0.6)])
def test_digits_are_learnt(name: str, least: float) -> None:
    pytest.importorskip("sklearn")
    out = run(name, "--epochs", "3")
    found = re.search(r"test accuracy ([\d.]+)", out)
    assert found is not None and float(found[1]) >= least, out


def test_a_scene_of_gaussians_is_trained(tmp_path: Path) -> None:
    out = run("splat_scene.py", "--steps", "60", "--ply", str(tmp_path / "scene.ply"))
    before, after = (float(d) for d in re.findall(r"the test view ([\d.]+) dB", out))
    assert after > before + 6, out
    assert len(rlx.splat.read_ply(tmp_path / "scene.ply")) == 150


def test_a_language_model_learns() -> None:
    out = run("language_model.py", "--steps", "40")
    found = re.match(r"loss ([\d.]+) to ([\d.]+)\n'the License", out)
    assert found is not None and float(found[2]) < 0.75 * float(found[1]), out


def test_a_sentence_encoder_is_fine_tuned() -> None:
    pytest.importorskip("tokenizers")
    out = run("sentence_pairs.py", "--steps", "4")
    first, last = (float(loss) for loss in re.findall(r"loss ([\d.]+),", out))
    assert last < 0.8 * first, out


def test_the_language_model_learns_step_by_step_as_its_twin_in_pytorch() -> None:
    spec = importlib.util.spec_from_file_location("language_model", EXAMPLES / "language_model.py")
    assert spec is not None and spec.loader is not None
    example: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    fixture = Path(__file__).parent / "fixtures" / "language_model.json"
    expected = json.loads(fixture.read_text())["losses"]
    step = rlx.compile_training(
        example.training_graph(),
        rlx.optim.AdamW(lr=1e-3, weight_decay=0.01),
        clip=rlx.optim.ClipNorm(1.0),
    )
    text = (ROOT / "LICENSE").read_bytes()
    history = rlx.fit(step, lambda n: example.windows(text, n), steps=len(expected))
    assert len(expected) == 50
    np.testing.assert_allclose(history.losses, expected, rtol=1e-4)
