"""``rlx chat``, ``rlx run -p`` and ``rlx serve`` on a small random model."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tokenizers", reason="texts need the package tokenizers")

import rlx
from rlx.tools.cli import main
from support.tiny_llm import write_talker
from support.tiny_lora import write_adapter

FEW = ["-n", "12", "--temperature", "1", "--seed", "3", "--threads", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_talker(tmp_path_factory.mktemp("talker")))


@pytest.fixture(scope="module")
def llm(folder: str) -> rlx.LLM:
    return rlx.LLM(folder, threads=1)


OPTIONS: dict[str, Any] = {"max_new_tokens": 12, "temperature": 1.0, "seed": 3}


def test_a_question(folder: str, llm: rlx.LLM, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", folder, "Hi", "--system", "Be short", *FEW]) == 0
    out, err = capsys.readouterr()
    messages = [{"role": "system", "content": "Be short"}, {"role": "user", "content": "Hi"}]
    assert out == f"{llm.chat(messages, **OPTIONS).text}\n"
    assert re.search(r"\d+ tokens read in [\d.]+ s; \d+ drawn at [\d.]+ tokens/s", err)


def test_a_conversation(
    folder: str, llm: rlx.LLM, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hi\n\nAnd you?\n"))
    system = "Answer in one short sentence, whatever the question"
    assert main(["chat", folder, "--system", system, *FEW]) == 0
    out, err = capsys.readouterr()
    first = [{"role": "system", "content": system}, {"role": "user", "content": "Hi"}]
    said = llm.chat(first, **OPTIONS).text
    second = [*first, {"role": "assistant", "content": said},
              {"role": "user", "content": "And you?"}]  # fmt: skip
    assert out == f"{said}\n{llm.chat(second, **OPTIONS).text}\n"
    assert "(64 known before)" in err, "what was said before is not read again"


def test_a_text_goes_on(folder: str, llm: rlx.LLM, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", folder, "-p", "Once", *FEW, "--precision", "f32"]) == 0
    out, _ = capsys.readouterr()
    assert out == f"{llm.generate('Once', **OPTIONS)[0].text}\n"


@pytest.mark.parametrize("how", [["--lookup"], ["--draft", "{}", "--draft-tokens", "3"]])
def test_speculation(
    how: list[str], folder: str, llm: rlx.LLM, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "la la la la la la"
    words = [w.format(folder) for w in how]
    assert main(["run", folder, "-p", text, "-n", "12", "--threads", "1", *words]) == 0
    out, err = capsys.readouterr()
    assert out == f"{llm.generate(text, max_new_tokens=12)[0].text}\n"
    assert re.search(r"\d+ of \d+ drafted were right", err)


@pytest.fixture(scope="module")
def adapter(folder: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An adapter of the second layer's down_proj, with an effect that is seen."""
    shapes = {"model.layers.1.mlp.down_proj.weight": [32, 48], "model.embed_tokens.weight": [1, 1]}
    return str(write_adapter(tmp_path_factory.mktemp("a") / "mine", "layer", shapes, lora_alpha=64))


def test_an_adapter(
    folder: str, adapter: str, llm: rlx.LLM, capsys: pytest.CaptureFixture[str]
) -> None:
    own = rlx.LLM(folder, threads=1, adapters={"x": adapter})
    wanted = own.generate("Once", adapter="x", **OPTIONS)[0].text
    assert wanted != llm.generate("Once", **OPTIONS)[0].text
    for said in (adapter, f"x={adapter}"):
        assert main(["run", folder, "-p", "Once", *FEW, "--lora", said]) == 0
        assert capsys.readouterr().out == f"{wanted}\n"
    for two, says in (
        (["a=x", "b=x"], "an answer has one adapter; --lora was given 2 times"),
        (["a=x", "a=y"], "two adapters are called 'a'; give --lora NAME=PATH"),
    ):
        words = [word for said in two for word in ("--lora", said.replace("x", adapter))]
        assert main(["run", folder, "-p", "Once", *words]) == 1
        assert says in capsys.readouterr().err


WRONG = {
    "no file": (
        ["chat", "some/model", "Hi"],
        "there is no file or folder some/model, and RLX downloads nothing; fetch it: hf download",
    ),
    "no model": (["chat", __file__, "Hi"], "is no language model; expected a GGUF file, or the"),
    "no prompt": (["run", "{}"], 'is a language model, which goes on with a text; give -p "TEXT"'),
    "arrays": (["run", "{}", "-p", "x", "--dim", "n=2"], "goes on with -p, and takes no arrays"),
    "files": (
        ["run", "{}", "-p", "x", "--params", "w.npz"],
        "goes on with -p, and takes no arrays",
    ),
    "a graph": (
        ["run", "x.mlir", "--top-k", "3"],
        "x.mlir is no language model, and --top-k is of",
    ),
    "a draft": (["run", "x.mlir", "--lookup"], "no language model, and --lookup is of these alone"),
    "long": (["chat", "{}", "Hi", "-n", "999"], "have no room in a context of"),
    "no ranks": (["serve", "{}", "--ranks", "0"], "found --ranks 0, expected 1 or more"),
    "no replicas": (["serve", "{}", "--replicas", "0"], "--replicas 0, expected 1 or more"),
    "no key": (["serve", "{}", "--api-key-file", "{}/empty"], "has no key: expected one line"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_commands(name: str, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    (Path(folder) / "empty").write_text("\n", encoding="utf-8")
    words, says = WRONG[name]
    assert main([w.format(folder) for w in words]) == 1
    assert says in capsys.readouterr().err


def test_serving_needs_its_packages(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", folder]) == 1
    assert "pip install 'rlx[serve]'" in capsys.readouterr().err


def test_replicas_are_started_by_the_first_process(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "2")
    assert main(["serve", folder, "--replicas", "3"]) == 1
    assert "write `rlx serve --replicas 3 --ranks 2`" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.delattr("socket.AF_UNIX")
    for words in (["--replicas", "3"], ["--socket", "x.sock"]):
        assert main(["serve", folder, *words]) == 1
        assert "this system has no Unix sockets" in capsys.readouterr().err


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_server_is_stopped_by_a_signal(folder: str, tmp_path: Path, ranks: int) -> None:
    pytest.importorskip("uvicorn", reason="serving needs the package uvicorn")
    (tmp_path / "key").write_text("secret\n", encoding="utf-8")
    words = ["serve", folder, "--port", "0", "--context", "64", "--sequences", "2",
             "--threads", "1", "--ranks", str(ranks), "--name", "talker",
             "--api-key-file", str(tmp_path / "key")]  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-m", "rlx.tools.cli", *words], stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        try:
            line = next(text for text in server.stderr if "Uvicorn running on" in text)
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            assert found is not None
            with urllib.request.urlopen(f"{found[0]}/health") as reply:
                assert reply.status == 200
            with pytest.raises(OSError, match="401"):
                urllib.request.urlopen(f"{found[0]}/v1/models")
            asked = urllib.request.Request(
                f"{found[0]}/v1/completions", b'{"model": "talker", "prompt": "Hi"}',
                {"Authorization": "Bearer secret", "Content-Type": "application/json"},
            )  # fmt: skip
            with urllib.request.urlopen(asked) as reply:
                assert b'"prompt_tokens":2' in reply.read()
        finally:
            server.send_signal(signal.SIGTERM)
            rest = server.stderr.read()
        assert server.wait() in (0, -signal.SIGTERM, 128 + signal.SIGTERM), rest
        assert "Finished server process" in rest
