"""The pages on language models do what they say, with SmolLM2 as the model."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("tokenizers", reason="texts need the package tokenizers")
pytest.importorskip("llguidance", reason="grammars need the package llguidance")

from rlx.tools.cli import parser
from support.minilm import SMOLLM_PACKAGE, smollm_file
from support.tiny_llm import write_talker

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
OPTIONS = doctest.ELLIPSIS


def run_page(name: str) -> None:
    names: dict[str, object] = {}
    found = BLOCK.findall((DOCS / name).read_text(encoding="utf-8"))
    assert found
    for code, wanted in found:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, name, "exec"), names)
        same = doctest.OutputChecker().check_output(wanted, printed.getvalue(), OPTIONS)
        assert same, f"{name} says\n{wanted}\nbut it prints\n{printed.getvalue()}"


def test_from_a_file_to_a_conversation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = smollm_file()
    if path is None:
        pytest.skip(f"the package {SMOLLM_PACKAGE} is not installed")
    (tmp_path / "model.gguf").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    run_page("llm.md")


def test_serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai", reason="the page uses the package openai")
    uvicorn = pytest.importorskip("uvicorn", reason="serving needs the package uvicorn")
    import rlx
    from rlx.llm.server import make_app

    llm = rlx.LLM(write_talker(tmp_path), threads=1, context=128, sequences=4)
    config = uvicorn.Config(make_app(llm, model="model"), port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        import openai

        plain = openai.OpenAI
        monkeypatch.setattr(
            openai, "OpenAI",
            lambda base_url, api_key: plain(
                base_url=base_url.replace("8000", str(port)), api_key=api_key
            ),
        )  # fmt: skip
        run_page("serving.md")
    finally:
        server.should_exit = True
        thread.join()


def test_the_commands_of_the_pages_are_understood() -> None:
    for name in ("llm.md", "serving.md"):
        text = (DOCS / name).read_text(encoding="utf-8")
        lines = re.findall(r"^rlx (\w+)(.*?)(?:#.*)?$", text, re.MULTILINE)
        assert lines
        for command, rest in lines:
            import shlex

            assert parser(command).parse_args([command, *shlex.split(rest)]).command == command
