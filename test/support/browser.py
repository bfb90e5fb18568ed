"""A page in a headless browser with WebGPU on the processor: Chromium, with SwiftShader.

The page does what it is asked, one thing at a time, for as long as the process lives:

    page().ask("return (await navigator.gpu.requestAdapter()).info.vendor")
"""

from __future__ import annotations

import atexit
import http.server
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

__all__ = ["NAMES", "BrowserError", "Page", "find", "page", "result_of"]

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The browsers that will do, the smallest first (`make drivers` has it)."""

_OPTIONS = (
    "--headless=new", "--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader",
    "--disable-dev-shm-usage", "--no-first-run",
)  # fmt: skip

_SECONDS = 300
"""That an answer may take."""

_PAGE = """<!doctype html><script type=module>
const run = Object.getPrototypeOf(async () => {}).constructor;
const kept = new Map();  // what scripts leave for later ones
for (;;) {
  const job = await (await fetch("/job")).json();
  const data = await (await fetch("/data")).arrayBuffer();
  let kind = "json", body;
  try {
    const found = await new run("kept", "data", "here", job.script)(kept, data, job.here);
    const bytes = found instanceof ArrayBuffer;
    [kind, body] = bytes ? ["bytes", found] : ["json", JSON.stringify(found ?? null)];
  } catch (e) {
    [kind, body] = ["error", String(e.message ?? e)];
  }
  await fetch(`/${kind}`, { method: "POST", body });
}
</script>
"""


class BrowserError(Exception):
    """What a script threw, or why there is no answer."""


def find() -> str | None:
    """The path of a browser, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the page, its jobs, and the files of folders; takes what the page posts."""

    def __init__(self, owner: Page, *args: Any, **more: Any) -> None:
        self.owner = owner
        super().__init__(*args, **more)

    def do_GET(self) -> None:
        match self.path:
            case "/":
                self._send(_PAGE.encode(), "text/html")
            case "/job":
                job, self.owner.data = self.owner.jobs.get()
                self._send(json.dumps(job).encode(), "application/json")
            case "/data":
                self._send(self.owner.data, "application/octet-stream")
            case _:
                super().do_GET()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.owner.answers.put((self.path[1:], body))
        self._send(b"", "text/plain")

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        # A page that is isolated may share memory among threads.
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Page:
    """A page that is open until ``close``. What is in ``folder`` is there for it to fetch."""

    def __init__(self, browser: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rlx-page-"))
        self.jobs: queue.SimpleQueue[tuple[dict[str, str], bytes]] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self.data = b""
        self._lock = threading.Lock()
        handler = partial(_Handler, self, directory=str(self.folder))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        # The browser brings a Vulkan of its own.
        ours = ("VK_ICD_FILENAMES", "VK_DRIVER_FILES", "LIBGL_DRIVERS_PATH")
        profile = f"--user-data-dir={self.folder / 'profile'}"
        self._process = subprocess.Popen(
            [browser, *_OPTIONS, profile, f"http://127.0.0.1:{self._server.server_port}/"],
            env={k: v for k, v in os.environ.items() if k not in ours},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def ask(self, script: str, *data: bytes, here: str = "", seconds: int = _SECONDS) -> Any:
        """What the body of an async function returns: bytes for an ArrayBuffer, else by JSON.

        It has ``data``, an ArrayBuffer; ``here``, the path of a folder for it; and ``kept``, a Map
        that later ones have too. BrowserError with the message of what it throws.
        """
        with self._lock:
            self.jobs.put(({"script": script, "here": here}, b"".join(data)))
            kind, body = self._answer(seconds)
        if kind == "error":
            raise BrowserError(body.decode())
        return body if kind == "bytes" else json.loads(body)

    def _answer(self, seconds: int) -> tuple[str, bytes]:
        for _ in range(seconds):
            try:
                return self.answers.get(timeout=1)
            except queue.Empty:
                if self._process.poll() is not None:
                    raise BrowserError(
                        f"the browser ended with status {self._process.returncode}"
                    ) from None
        raise BrowserError(f"the page gave no answer in {seconds} s")

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(20)
        self._server.shutdown()
        self._server.server_close()
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def page() -> Page:
    """The page of this process; without a browser the test is skipped."""
    browser = find()
    if browser is None:
        pytest.skip(f"none of {', '.join(NAMES)} is on PATH (run `make drivers`)")
    made = Page(browser)
    atexit.register(made.close)
    return made


def result_of(folder: Path, script: str, *data: bytes) -> Any:
    """``ask``, with the files of a folder ``here``."""
    p = page()
    with tempfile.TemporaryDirectory(dir=p.folder) as made:
        place = Path(made) / "files"
        place.symlink_to(folder.resolve())
        return p.ask(script, *data, here=f"/{place.relative_to(p.folder)}")
