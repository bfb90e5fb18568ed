"""``rlx serve MODEL``: a language model or an encoder over HTTP, by the API of OpenAI."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import signal
import socket
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from rlx.base.mesh import Mesh
from rlx.base.world import world_size
from rlx.distributed.connections import connect
from rlx.distributed.launcher import GRACE, Launch, exit_on_sigterm
from rlx.distributed.status import begin
from rlx.errors import GraphError, RlxError, UnsupportedError
from rlx.tools.kinds import Kind, kind_of
from rlx.tools.language import MODEL_OPTIONS, add_language_session, load, refuse_options

if TYPE_CHECKING:
    from rlx.models import Embed, Rerank

__all__ = ["add_arguments", "run"]

SEQUENCES = 64
"""Answers drawn together, unless the command says otherwise."""
LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument(
        "model", help="a GGUF file, or the folder of a language model, an encoder or a reranker"
    )
    p.add_argument("--host", default="127.0.0.1", help="the address to listen at (127.0.0.1)")
    p.add_argument("--port", type=int, default=8000, help="the port to listen at (8000)")
    p.add_argument("--name", help="the model's name in the API; by default that of its file")
    p.add_argument("--api-key-file", metavar="FILE", help="has the key that clients must send")
    p.add_argument("--tokens", type=int, help="room for so many tokens of all answers together")
    p.add_argument("--sequences", type=int, help=f"answers drawn together ({SEQUENCES})")
    p.add_argument("--max-requests", type=int, default=256, help="requests at a time (256)")
    p.add_argument(
        "--grace", type=int, default=30, metavar="SECONDS",
        help="how long requests may take to end once it is stopped (30)",
    )  # fmt: skip
    p.add_argument("--ranks", type=int, default=1,
                   help="processes of this machine that share the model (1)")  # fmt: skip
    p.add_argument("--replicas", type=int, default=1,
                   help="processes of this machine that each have the whole model (1)")  # fmt: skip
    p.add_argument("--socket", metavar="PATH", help="listen at this Unix socket, not at a port")
    add_language_session(p)


def run(args: argparse.Namespace) -> int:
    """Serve until it is stopped; as one of several ranks, if ``rlx launch``, a starter of MPI or
    ``--ranks`` have started it so."""
    begin()
    ranks = world_size()
    _check(args, ranks)
    try:
        from rlx.llm.server import make_app, make_encoder_app

        importlib.import_module("uvicorn")
    except ImportError as e:
        raise RlxError(f"serving needs {e.name}: pip install 'rlx[serve]'") from None
    key = None if args.api_key_file is None else _key(args.api_key_file)
    local = args.host in LOOPBACK
    hosts = LOOPBACK if local and not args.socket else None
    if args.replicas > 1:
        return _replicas(args, key, hosts)
    if args.ranks > 1 and ranks == 1 and kind_of(args.model) != Kind.ENCODER:
        return _on_ranks(args)
    if kind_of(args.model) == Kind.ENCODER:
        encoder, options = _encoder(args, ranks), _named(args, key, hosts)
        return _listen(args, make_encoder_app(encoder, **options), key, local=local)
    mesh = Mesh(model=ranks) if ranks > 1 else None
    rank = 0 if mesh is None else connect(mesh)
    sequences = SEQUENCES if args.sequences is None else args.sequences
    llm = load(args, tokens=args.tokens, sequences=sequences, mesh=mesh)
    llm.tokenizer  # noqa: B018 # which says that there is none
    llm.warm_up()
    if rank:
        # They end with the first rank, which has requests to end before.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        llm.take_part()
        return 0
    return _listen(args, make_app(llm, **_named(args, key, hosts)), key, local=local)


def _named(
    args: argparse.Namespace, key: str | None, hosts: Collection[str] | None
) -> dict[str, Any]:
    """The options of an application."""
    name = args.name or os.path.basename(os.path.normpath(args.model)).removesuffix(".gguf")
    return {"model": name, "api_key": key, "hosts": hosts, "max_requests": args.max_requests}


def _encoder(args: argparse.Namespace, ranks: int) -> Embed | Rerank:
    """The encoder in a folder: a cross-encoder if its classifier has one label."""
    from rlx.models import Embed, Rerank
    from rlx.models.files import read_json

    if ranks > 1 or args.ranks > 1:
        raise GraphError(
            f"serve: {args.model} is an encoder, which ranks do not share; give --replicas"
        )
    refuse_options(args.model, args, (*MODEL_OPTIONS, "tokens", "sequences"))
    labels = read_json(os.path.join(args.model, "config.json"), dict).get("id2label")
    made = Rerank if isinstance(labels, dict) and len(labels) == 1 else Embed
    found = made.from_dir(args.model, args.device, args.precision or "f32", args.threads)
    # One compile serves all sizes.
    found.encode(["warm"]) if isinstance(found, Embed) else found.score("warm", ["up"])
    return found


def _listen(args: argparse.Namespace, app: Any, key: str | None, *, local: bool) -> int:
    """Serve until it is stopped."""
    import uvicorn

    if args.socket:
        # Whoever may write to the socket says for whom it asks.
        uvicorn.run(app, uds=args.socket, forwarded_allow_ips="*", **_options(args))
        return 0
    if not local and not key:
        _warn(args.host)
    uvicorn.run(app, host=args.host, port=args.port, **_options(args))
    return 0


def _check(args: argparse.Namespace, ranks: int) -> None:
    """RlxError for counts and ways that cannot be."""
    for name in ("ranks", "replicas"):
        if getattr(args, name) < 1:
            found = getattr(args, name)
            raise GraphError(f"serve: found --{name} {found}, expected 1 or more")
    if args.replicas > 1 and ranks > 1:
        raise GraphError(
            f"serve: found --replicas {args.replicas} in one of {ranks} ranks; write `rlx serve"
            f" --replicas {args.replicas} --ranks {ranks}`, which starts both"
        )
    if (args.replicas > 1 or args.socket) and not hasattr(socket, "AF_UNIX"):
        raise UnsupportedError(
            "serve: this system has no Unix sockets, which --socket and --replicas need"
        )


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """Those of the server of HTTP."""
    return {
        "log_level": "info", "access_log": False, "timeout_graceful_shutdown": args.grace,
    }  # fmt: skip


def _warn(host: str) -> None:
    print(f"rlx: whoever reaches {host} may use the model; give --api-key-file", file=sys.stderr)


def _replicas(args: argparse.Namespace, key: str | None, hosts: Collection[str] | None) -> int:
    """The same command in several processes at sockets of their own, and a server before them."""
    import uvicorn

    from rlx.llm.server.access import Access
    from rlx.llm.server.front import Front
    from rlx.llm.server.replicas import Replicas

    threads = args.threads or max(1, (os.cpu_count() or 1) // (args.replicas * args.ranks))
    end = args.argv.index("--") if "--" in args.argv else len(args.argv)
    own = ("--replicas", "1", "--threads", str(threads), "--socket")

    def command(path: str) -> list[str]:
        return ["-m", "rlx", *args.argv[:end], *own, path, *args.argv[end:]]

    where = {"uds": args.socket} if args.socket else {"host": args.host, "port": args.port}
    if hosts is None and not args.socket and not key:
        _warn(args.host)

    async def serve() -> None:
        async with Replicas(command, args.replicas, grace=args.grace + GRACE) as replicas:
            config = uvicorn.Config(
                Front(replicas, Access(key, hosts)), lifespan="off", ws="none", **where,
                **_options(args),
            )  # fmt: skip
            await uvicorn.Server(config).serve()

    with exit_on_sigterm():
        asyncio.run(serve())
    return 0


def _on_ranks(args: argparse.Namespace) -> int:
    """The same command in several processes."""
    threads = args.threads or max(1, (os.cpu_count() or 1) // args.ranks)
    command = ("-m", "rlx", *args.argv)
    return Launch(command, args.ranks, threads, grace=args.grace + GRACE).run()


def _key(path: str) -> str:
    """The key in a file; RlxError if there is none."""
    with open(path, encoding="utf-8") as f:
        found = f.read().strip()
    if not found:
        raise RlxError(f"{path} has no key: expected one line")
    return found
