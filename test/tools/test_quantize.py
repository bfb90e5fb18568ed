"""rlx quantize: files of weights to GGUF files of a scheme."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx import quant
from rlx.frontends.gguf import Tensor, read, write
from rlx.models.safetensors import write_safetensors
from rlx.tools.cli import main

X = np.random.default_rng(0).standard_normal((4, 256)).astype(np.float32)
TENSORS: dict[str, Any] = {"w": X, "odd": X[:, :20], "norm": X[0], "ids": X.astype(np.int32)}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.gguf"


@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
def test_weights_are_quantised_and_the_rest_stays(
    kind: str, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = out.with_name(f"in.{kind}")
    if kind == "gguf":
        write(given, TENSORS, {"general.name": "x", "n": 3}, {"n": "u16"})
    else:
        write_safetensors(given, TENSORS)
    assert main(["quantize", str(given), str(out), "--scheme", "q4_k"]) == 0
    f = read(out)
    assert {name: t.scheme for name, t in f.items()} == {
        "w": "q4_k", "odd": "f32", "norm": "f32", "ids": "i32",
    }  # fmt: skip
    np.testing.assert_array_equal(f["w"].data, quant.quantize(X, "q4_k"))
    np.testing.assert_array_equal(f["ids"].numpy(), TENSORS["ids"])
    if kind == "gguf":
        assert f.metadata == {"general.name": "x", "n": 3} and f.kinds["n"] == "u16"
    shown = capsys.readouterr().out
    assert (
        "w                                        4x256            f32      -> q4_k error 0.0"
        in shown
    )
    assert "stays" in shown and "MiB are" in shown


def test_one_scheme_becomes_another(out: Path) -> None:
    given = out.with_name("in.gguf")
    write(given, {"w": Tensor.of(X, "q8_0"), "zero": X * 0})
    assert main(["quantize", str(given), str(out), "--scheme", "q5_0"]) == 0
    wide = quant.dequantize(quant.quantize(X, "q8_0"), "q8_0", X.shape)
    np.testing.assert_array_equal(read(out)["w"].data, quant.quantize(wide, "q5_0"))


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        ("q4k", "did you mean 'q4_k'"),
        ("awq", "makes schemes of blocks, such as q8_0, found awq"),
        ("iq2_xxs", "makes schemes of blocks, such as q8_0, found iq2_xxs"),
        ("q8_0", "tensor 'w': q8_0 holds finite numbers"),
    ],
)
def test_refused(scheme: str, said: str, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = out.with_name("in.gguf")
    write(given, {"w": X * np.float32(np.nan)})
    assert main(["quantize", str(given), str(out), "--scheme", scheme]) == 1
    assert said in capsys.readouterr().err
    assert not out.exists()
