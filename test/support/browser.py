"""Pages in a headless browser with WebGPU on the processor: Chromium, with SwiftShader."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

__all__ = ["result_of"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")

_OPTIONS = (
    "--headless=new", "--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader",
    "--disable-dev-shm-usage", "--no-first-run",
)  # fmt: skip

_SECONDS = 90


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and takes what a page posts."""

    def __init__(self, results: list[Any], done: threading.Event, *args: Any, **more: Any) -> None:
        self.results, self.done = results, done
        super().__init__(*args, **more)

    def do_POST(self) -> None:
        size = int(self.headers["content-length"])
        self.results.append(json.loads(self.rfile.read(size)))
        self.send_response(200)
        self.end_headers()
        self.done.set()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def result_of(folder: Path, script: str, profile: Path) -> Any:
    """What the async function body ``script`` returns in a page of ``folder``, as JSON; an error's
    text as {"error": ...}. Skips where there is no browser."""
    browser = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(_NAMES)} is on PATH")
    page = (
        "<!doctype html><script type=module>\n"
        f"const main = async () => {{\n{script}\n}};\n"
        "const result = await main().catch((e) => ({ error: String(e) }));\n"
        'await fetch("/result", { method: "POST", body: JSON.stringify(result) });\n'
        "</script>"
    )
    (folder / "test.html").write_text(page, encoding="utf-8")
    results: list[Any] = []
    done = threading.Event()
    handler = partial(_Handler, results, done, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # The browser brings a Vulkan of its own.
    ours = ("VK_ICD_FILENAMES", "VK_DRIVER_FILES", "LD_LIBRARY_PATH", "LIBGL_DRIVERS_PATH")
    environment = {k: v for k, v in os.environ.items() if k not in ours}
    url = f"http://127.0.0.1:{server.server_port}/test.html"
    command = [browser, *_OPTIONS, f"--user-data-dir={profile}", url]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        assert done.wait(_SECONDS), "the page posted nothing"
    finally:
        process.terminate()
        process.wait(20)
        server.shutdown()
        server.server_close()
    return results[0]
