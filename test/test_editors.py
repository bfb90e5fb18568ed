"""What editors and prompts show: names on Tab, signatures, and docstrings."""

from __future__ import annotations

import importlib
import inspect
import json
import pydoc
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import rlx
from rlx.lowering.compilation import OptionArgs, Options
from rlx.ops import BUILDERS, WITHOUT_VALUE


def value() -> Any:
    return rlx.Graph("g").input("x", [2, 3])


def test_ops_are_listed() -> None:
    x = value()
    assert {*dir(x)} >= {*BUILDERS, "shape", "dtype"} - {*WITHOUT_VALUE}
    assert not {*dir(x)} & {*WITHOUT_VALUE}
    assert {*dir(x.graph)} >= {*BUILDERS, "input", "set_outputs"}


@pytest.mark.parametrize("method", sorted({*BUILDERS} - {*WITHOUT_VALUE}))
def test_a_method_of_a_value_is_that_of_the_graph_without_the_value(method: str) -> None:
    x = value()
    of_graph, of_value = getattr(x.graph, method), getattr(x, method)
    assert of_value.__name__ == of_graph.__name__ == method
    if inspect.ismethod(of_graph):  # constant and iota
        return
    listed = list(inspect.signature(of_graph).parameters.values())
    taken = 0 if listed[0].kind is listed[0].VAR_POSITIONAL else 1
    assert list(inspect.signature(of_value).parameters.values()) == listed[taken:]
    assert inspect.getdoc(of_value) == inspect.getdoc(of_graph) != ""


def test_help_says_what_an_op_is() -> None:
    said = pydoc.plain(pydoc.render_doc(value().gelu))
    assert "gelu() -> 'Value'" in said
    assert "distribution function of the standard normal" in said
    said = pydoc.plain(pydoc.render_doc(rlx.Graph("g").softmax))
    assert "softmax(x: 'Value', axis: 'int' = -1) -> 'Value'" in said
    assert "axis: the axis along which the exponentials are summed" in said


def test_options_are_keywords_with_types() -> None:
    assert {*OptionArgs.__annotations__} == {f.name for f in fields(Options)}
    assert OptionArgs.__total__ is False


@pytest.mark.parametrize("jedi", [True, False])
def test_ipython_completes_ops(jedi: bool) -> None:
    pytest.importorskip("IPython", reason="IPython is not installed")
    completers: Any = importlib.import_module("IPython.core.completer")
    shell: Any = importlib.import_module("IPython.core.interactiveshell").InteractiveShell()
    shell.user_ns["x"] = value()
    completer: Any = completers.IPCompleter(shell=shell, namespace=shell.user_ns)
    completer.use_jedi = jedi
    with completers.provisionalcompleter():
        found = {c.text.lstrip(".") for c in completer.completions("x.soft", 6)}
    assert found >= {"softmax", "softplus"}
    info = shell.object_inspect("x.gelu")
    assert "standard normal" in info["docstring"]
    assert info["definition"].startswith("x.gelu()") or "gelu()" in info["definition"]


# -- pyright -------------------------------------------------------------------------------

SOURCE = """\
import rlx

g = rlx.Graph("g")
x = g.input("x", [2, 3])
y = x.gelu()
f = rlx.Session().compile(g, fus=False)

one = rlx.custom_op("my.one", infer=lambda x: x)(lambda x: x)
two = rlx.custom_op("my.two", infer=lambda x: (x, x), results=2)(lambda x: (x, x))
reveal_type(one(x))
reveal_type(two(x))
"""


def _server() -> str | None:
    beside = Path(sys.executable).with_name("pyright-langserver")
    return str(beside) if beside.exists() else shutil.which("pyright-langserver")


class Client:
    """Enough of the Language Server Protocol to ask one question."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self.number = process, 0

    def say(self, method: str, params: Any, **more: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def ask(self, method: str, params: Any) -> Any:
        self.number += 1
        self.say(method, params, id=self.number)
        while True:
            found = self.read()
            if found.get("id") == self.number and "method" not in found:
                return found.get("result")
            if "id" in found:  # the server's own questions
                empty = [{}] * len(found.get("params", {}).get("items", []))
                self.answer(found["id"], empty)

    def answer(self, number: Any, result: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def read(self) -> Any:
        assert self.process.stdout is not None
        length = 0
        while line := self.process.stdout.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return json.loads(self.process.stdout.read(length))


@contextmanager
def editor(folder: Path) -> Generator[Client]:
    """An editor with the source open."""
    command = _server()
    if command is None:
        pytest.skip("pyright is not installed")
    with subprocess.Popen(
        [command, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        client = Client(process)
        root = folder.as_uri()
        client.ask("initialize", {
            "processId": None, "rootUri": root, "capabilities": {},
            "workspaceFolders": [{"uri": root, "name": "w"}],
        })  # fmt: skip
        client.say("initialized", {})
        client.say("textDocument/didOpen", {"textDocument": {
            "uri": f"{root}/a.py", "languageId": "python", "version": 1, "text": SOURCE,
        }})  # fmt: skip
        try:
            yield client
        finally:
            process.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of a user's, with the interpreter that has RLX."""
    (tmp_path / "a.py").write_text(SOURCE)
    settings = {"extraPaths": [str(Path(rlx.__file__).parent.parent)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    return tmp_path


def test_a_hover_has_the_signature_and_the_docstring(folder: Path) -> None:
    with editor(folder) as client:
        found = client.ask("textDocument/hover", {
            "textDocument": {"uri": f"{folder.as_uri()}/a.py"},
            "position": {"line": 4, "character": 7},
        })  # fmt: skip
    text = found["contents"]["value"] if isinstance(found["contents"], dict) else str(found)
    assert re.search(r"def gelu\(\) -> Value|gelu\(\) -> Value", text)
    assert "distribution function of the standard normal" in text
    assert "x: the tensor" in text


def test_pyright_knows_options_and_what_custom_ops_give(folder: Path) -> None:
    command = _server()
    if command is None:
        pytest.skip("pyright is not installed")
    pyright = str(Path(command).with_name("pyright"))
    done = subprocess.run(
        [pyright, "--project", str(folder)], capture_output=True, text=True, check=False
    )
    assert 'No parameter named "fus"' in done.stdout
    assert 'Type of "one(x)" is "Value"' in done.stdout
    assert 'Type of "two(x)" is "tuple[Value, ...]"' in done.stdout
