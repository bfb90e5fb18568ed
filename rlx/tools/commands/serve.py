"""``rlx serve MODEL``: a language model over HTTP, by the API of OpenAI."""

from __future__ import annotations

import argparse
import os
import sys

from rlx.errors import RlxError
from rlx.tools.language import add_language_session, load

__all__ = ["add_arguments", "run"]

LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument("model", help="a GGUF file, or a folder with config.json and safetensors files")
    p.add_argument("--host", default="127.0.0.1", help="the address to listen at (127.0.0.1)")
    p.add_argument("--port", type=int, default=8000, help="the port to listen at (8000)")
    p.add_argument("--name", help="the model's name in the API; by default that of its file")
    p.add_argument("--api-key-file", metavar="FILE", help="has the key that clients must send")
    p.add_argument("--tokens", type=int, help="room for so many tokens of all answers together")
    p.add_argument("--sequences", type=int, default=64, help="answers drawn together (64)")
    p.add_argument("--max-requests", type=int, default=256, help="requests at a time (256)")
    p.add_argument(
        "--grace", type=int, default=30, metavar="SECONDS",
        help="how long requests may take to end once it is stopped (30)",
    )  # fmt: skip
    add_language_session(p)


def run(args: argparse.Namespace) -> int:
    """Serve until it is stopped."""
    try:
        import uvicorn

        from rlx.llm.server import make_app
    except ImportError as e:
        raise RlxError(f"serving needs {e.name}: pip install 'rlx[serve]'") from None
    key = None if args.api_key_file is None else _key(args.api_key_file)
    llm = load(args, tokens=args.tokens, sequences=args.sequences)
    llm.tokenizer  # noqa: B018 # which says that there is none
    llm.warm_up()
    local = args.host in LOOPBACK
    if not local and not key:
        print(
            f"rlx: whoever reaches {args.host} may use the model; give --api-key-file",
            file=sys.stderr,
        )
    name = args.name or os.path.basename(os.path.normpath(args.model)).removesuffix(".gguf")
    app = make_app(
        llm, model=name, api_key=key, hosts=LOOPBACK if local else None,
        max_requests=args.max_requests,
    )  # fmt: skip
    uvicorn.run(
        app, host=args.host, port=args.port, log_level="info", access_log=False,
        timeout_graceful_shutdown=args.grace,
    )  # fmt: skip
    return 0


def _key(path: str) -> str:
    """The key in a file; RlxError if there is none."""
    with open(path, encoding="utf-8") as f:
        found = f.read().strip()
    if not found:
        raise RlxError(f"{path} has no key: expected one line")
    return found
