"""Replicas of a language model behind Ray Serve, which places them and starts them again.

    python examples/cluster/ray_serve.py model.gguf --replicas 2

Each replica has the whole model, and draws the answers of its requests together. A request is JSON
with a `prompt`, and options of `rlx.LLM.answer`:

    curl localhost:8000 -d '{"prompt": "Once upon a time", "max_new_tokens": 16}'
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from typing import Any

import ray  # pyright: ignore[reportMissingImports]
from ray import serve  # pyright: ignore[reportMissingImports]


class Replica:
    """An actor, which has the model."""

    def __init__(self, model: str, threads: int, context: int) -> None:
        import rlx

        self.llm = rlx.LLM(model, threads=threads, context=context)
        self.llm.warm_up()

    async def __call__(self, request: Any) -> dict[str, Any]:
        """The answer to a request; others that come meanwhile share its steps."""
        import rlx

        options = await request.json()
        try:
            found = await asyncio.to_thread(
                self.llm.generate, options.pop("prompt", None), **options
            )
        except rlx.RlxError as error:
            return {"error": error.message, "pid": os.getpid()}
        return {"text": found[0].text, "ids": list(found[0].ids), "pid": os.getpid()}


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Serve a language model by Ray.")
    parser.add_argument("model", help="a GGUF file or a folder, which all machines see")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="cores of a replica")
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()
    ray.init(num_cpus=max(os.cpu_count() or 1, 1 + args.replicas * args.threads),
             include_dashboard=False, log_to_driver=False)  # fmt: skip
    serve.start(http_options={"port": args.port})
    replicas = serve.deployment(
        num_replicas=args.replicas, max_ongoing_requests=64,
        ray_actor_options={"num_cpus": args.threads},
    )(Replica)  # fmt: skip
    model = os.path.abspath(args.model)
    serve.run(replicas.bind(model, args.threads, args.context))  # pyright: ignore
    print(f"{args.replicas} replicas at http://127.0.0.1:{args.port}", flush=True)
    try:
        while True:
            time.sleep(1)
    finally:
        serve.shutdown()


if __name__ == "__main__":
    main()
