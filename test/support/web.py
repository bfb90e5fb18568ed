"""The target ``webgpu`` as a device: programs are written as ``rlx export-web`` does, and a page in
a headless browser runs them by ``rlx.js``. A message of its compiler (Tint) is an error."""

from __future__ import annotations

import itertools
import json
import math
import re
import subprocess
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rlx.compiler.aot import compile_artifact
from rlx.errors import FaultError, GraphError, ToolchainError, UnsupportedError
from rlx.ir.arrays import as_array
from rlx.ir.graph import Graph
from rlx.runtime.backend import Backend
from rlx.runtime.interpreted import Interpreted
from rlx.runtime.web import write_bundle
from rlx.types import DTYPES
from support.browser import NAMES, BrowserError, find, page, result_of
from support.support_record import HERE

__all__ = ["NAME", "WebBackend", "device_name", "messages", "why_not"]

NAME = "webgpu"

PAGE = HERE[NAME]
"""What pages here have beyond every page: ops that need so many buffers run there too."""

Array = np.ndarray[Any, Any]

_MESSAGES = """
const said = async (module) =>
  (await module.getCompilationInfo()).messages.map((m) => `${m.type}: ${m.lineNum}: ${m.message}`);
"""

_COMPILE = f"""{_MESSAGES}
const adapter = await navigator.gpu.requestAdapter();
const device = await adapter.requestDevice();
const found = await said(device.createShaderModule({{ code: new TextDecoder().decode(data) }}));
device.destroy();
return found;
"""

_ABLE = """
if (!navigator.gpu) return "it has no WebGPU";
const adapter = await navigator.gpu.requestAdapter();
if (!adapter) return "its WebGPU has no adapter";
try {
  (await adapter.requestDevice()).destroy();
} catch (e) {
  return `its adapter gives no device: ${e.message}`;
}
return "";
"""

_LOAD = f"""{_MESSAGES}
const {{ load, ARRAYS }} = await import(`${{here}}/rlx.js`);
const [number, gone] = JSON.parse(new TextDecoder().decode(data));
for (const n of gone) {{
  kept.get(n).model.device.destroy();
  kept.delete(n);
}}
const made = [], create = GPUDevice.prototype.createShaderModule;
GPUDevice.prototype.createShaderModule = function (given) {{
  made.push(create.call(this, given));
  return made.at(-1);
}};
const errors = [];
try {{
  const model = await load(`${{here}}/`);
  kept.set(number, {{ model, ARRAYS }});
}} catch (e) {{
  errors.push(e.message);
}}
GPUDevice.prototype.createShaderModule = create;
return [...(await Promise.all(made.map(said))).flat(), ...errors];
"""

_RUN = """
const { model, ARRAYS } = kept.get(%d);
const feeds = {};
let at = 0;
for (const { name, dtype, shape } of model.inputs) {
  const parts = dtype === "c64" ? 2 : 1;
  const size = shape.reduce((a, b) => a * b, parts) * ARRAYS[dtype].BYTES_PER_ELEMENT;
  feeds[name] = new ARRAYS[dtype](data.slice(at, (at += size)));
}
return new Blob(Object.values(await model.run(feeds))).arrayBuffer();
"""

_numbers = itertools.count()

_gone: deque[int] = deque()
"""Models that nothing refers to any more; the page drops them as it loads the next."""


@cache
def why_not() -> str:
    """Why no page computes here; "" if one does. A browser alone is not enough: it may not start,
    or have no WebGPU, or none for the processor."""
    browser = find()
    if browser is None:
        return f"none of {', '.join(NAMES)} is on PATH"
    try:
        said = page().ask(_ABLE, seconds=60)
    except (BrowserError, OSError) as e:
        said = str(e)
    return f"{browser}: {said}" if said else ""


@cache
def device_name() -> str:
    """What runs the programs: a browser, and its WebGPU for the processor."""
    words = [str(find()), "--version"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return "SwiftShader, " + " ".join(re.findall(r"[A-Z]\w+|\d+(?=\.\d+\.\d)", said)[:2])


def messages(wgsl: bytes) -> list[str]:
    """What Tint says of WGSL."""
    return page().ask(_COMPILE, wgsl)


class WebBackend(Backend):
    """Pages of browsers as a device."""

    name = NAME

    def load(self, graph: Graph, options: Mapping[str, Any], shared: Sequence[Any]) -> Any:
        """A graph with all dims bound, compiled; the page loads it as it is first run."""
        return _InBrowser(graph, options)


class _InBrowser(Interpreted):
    def __init__(self, graph: Graph, options: Mapping[str, Any]) -> None:
        super().__init__(graph)
        try:
            self.compiled = compile_artifact(graph, NAME, **options)
        except UnsupportedError as e:
            if "buffers, and a kernel of webgpu" not in e.message:
                raise
            self.compiled = compile_artifact(graph, PAGE, **options)
        self._loaded: dict[str, Array] | None = None
        self._model = -1
        self._drop: Callable[[], Any] = lambda: None

    def run_slots(self, *inputs: Array) -> tuple[Array, ...]:
        expected = self.artifact.inputs
        if len(inputs) != len(expected):
            raise GraphError(f"found {len(inputs)} inputs, expected {len(expected)}")
        given = [as_array(a, s, "input") for a, s in zip(inputs, expected, strict=True)]
        self._load()
        try:
            found = page().ask(_RUN % self._model, *(a.tobytes() for a in given))
        except BrowserError as e:
            raise _fault(str(e)) or ToolchainError(f"the page: {e}") from None
        return tuple(self._outputs(found))

    def _load(self) -> None:
        """Have the page load the program, anew where params were set since."""
        params = self.weights.params
        if self._loaded is not None and all(self._loaded[n] is params[n] for n in params):
            return
        number, gone = next(_numbers), [_gone.popleft() for _ in range(len(_gone))]
        with tempfile.TemporaryDirectory() as folder:
            write_bundle(replace(self.compiled, values=dict(params)), folder)
            said = result_of(Path(folder), _LOAD, json.dumps([number, gone]).encode())
        if said:
            raise _fault(said[-1]) or ToolchainError(f"the page has messages: {said}")
        self._drop()
        self._model, self._loaded = number, dict(params)
        self._drop = weakref.finalize(self, _gone.append, number)

    def _outputs(self, found: bytes) -> Iterator[Array]:
        at = 0
        for _, dt, shape in self.artifact.outputs:
            kind, count = DTYPES[dt].numpy, math.prod(shape)
            yield np.frombuffer(found, kind, count, at).reshape(shape).copy()
            at += count * np.dtype(kind).itemsize
        assert at == len(found)


def _fault(said: str) -> FaultError | None:
    """The fault of a program, if that is what ``rlx.js`` said."""
    found = re.fullmatch(r"rlx: (.+?):(\d+): (.*)", said, re.DOTALL)
    return FaultError(found[3], (found[1], int(found[2]))) if found else None
