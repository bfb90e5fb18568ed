"""Language models on the command line: options, and an answer shown as it is drawn."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rlx.base.clock import Tick
from rlx.errors import RlxError
from rlx.models.files import check_there
from rlx.tools.kinds import LANGUAGE, Kind, kind_of
from rlx.tools.options import add_device, add_threads

if TYPE_CHECKING:
    from rlx.llm.arguments import Prompt
    from rlx.llm.model import LLM

__all__ = [
    "MODEL_OPTIONS", "add_answer_options", "add_language", "add_language_session",
    "add_model_options", "answer_options", "load", "refuse_language_options", "refuse_options",
    "show",
]  # fmt: skip

MODEL_OPTIONS = ("context", "cache", "draft_tokens", "draft", "lookup", "lora")
ANSWER_OPTIONS = ("max_new_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "stop")


def add_model_options(p: argparse._ActionsContainer) -> None:
    """How a model is loaded, beside the options of a session."""
    p.add_argument("--context", type=int, help="the most tokens of a prompt and its answer")
    p.add_argument("--cache", help="the type of keys and values: f16 (the default), bf16, f32")
    p.add_argument("--lora", action="append", metavar="[NAME=]PATH",
                   help="an adapter: a folder of PEFT, or a GGUF file")  # fmt: skip
    add_speculation(p)


def add_speculation(p: argparse._ActionsContainer) -> None:
    """What drafts tokens."""
    own = p.add_mutually_exclusive_group()
    own.add_argument("--draft", metavar="MODEL", help="a smaller model that drafts tokens")
    own.add_argument(
        "--lookup", action="store_const", const="lookup", help="draft from the text so far"
    )
    p.add_argument("--draft-tokens", type=int, help="the most tokens of a draft (4)")


def add_answer_options(p: argparse._ActionsContainer) -> None:
    """How answers are drawn."""
    p.add_argument("-n", "--max-new-tokens", type=int, help="the most tokens of an answer")
    p.add_argument("--temperature", type=float, help="0 takes the likeliest token")
    p.add_argument("--top-k", type=int, help="draw from so many tokens")
    p.add_argument("--top-p", type=float, help="draw from those that share so much probability")
    p.add_argument("--min-p", type=float, help="draw from those of so much of the likeliest's")
    p.add_argument("--seed", type=int, help="what makes draws the same again")
    p.add_argument("--stop", action="append", metavar="TEXT", help="a text that ends an answer")


def answer_options(args: argparse.Namespace) -> dict[str, Any]:
    """Those of ``LLM.answer`` that were given. RlxError for several adapters."""
    given = {name: value for name in ANSWER_OPTIONS if (value := getattr(args, name)) is not None}
    adapters = _adapters(args)
    if len(adapters) > 1:
        raise RlxError(f"an answer has one adapter; --lora was given {len(adapters)} times")
    return {**given, **({"adapter": next(iter(adapters))} if adapters else {})}


def _adapters(args: argparse.Namespace) -> dict[str, str]:
    """The adapters of a command line by name, which is that of the file where none is said."""
    found: dict[str, str] = {}
    for said in args.lora or ():
        name, _, path = said.partition("=")
        if not path or os.path.exists(said):
            name, path = os.path.basename(os.path.normpath(said)).removesuffix(".gguf"), said
        if name in found:
            raise RlxError(f"two adapters are called {name!r}; give --lora NAME=PATH")
        found[name] = path
    return found


def refuse_language_options(path: str, args: argparse.Namespace) -> None:
    """RlxError if an option is given that language models alone have."""
    refuse_options(path, args, (*MODEL_OPTIONS, *ANSWER_OPTIONS))


def refuse_options(path: str, args: argparse.Namespace, names: Iterable[str]) -> None:
    """RlxError if one of the options ``names`` is given, which language models alone have."""
    for name in names:
        if getattr(args, name) is not None:
            spelled = "-n" if name == "max_new_tokens" else f"--{name.replace('_', '-')}"
            raise RlxError(f"{path} is no language model, and {spelled} is of these alone")


def add_language(p: argparse.ArgumentParser) -> None:
    """All options."""
    add_language_session(p)
    add_answer_options(p)


def add_language_session(p: argparse._ActionsContainer) -> None:
    """How a model is loaded, with the device, the precision and the threads."""
    add_model_options(p)
    add_device(p)
    p.add_argument("--precision", help="what rows meet weights as: q8 (the default), bf16 or f32")
    add_threads(p)


def load(args: argparse.Namespace, **options: Any) -> LLM:
    """The model that a command line names; ``options`` are others of ``LLM``."""
    from rlx.llm.model import LLM
    from rlx.runtime.backend import default_device

    check_there(args.model, "file or folder")
    if (kind := kind_of(args.model)) not in LANGUAGE:
        found = {Kind.TEXT: "", Kind.ENCODER: f" but {kind}, which rlx embed takes"}
        raise RlxError(
            f"{args.model} is no language model{found.get(kind, f' but {kind}')}; expected"
            " a GGUF file, or the folder of a language model"
        )
    names = ("precision", "context", "cache", "draft_tokens")
    given = {n: v for n in names if (v := getattr(args, n)) is not None}
    given |= {"speculate": args.draft or args.lookup, "adapters": _adapters(args)}
    device = args.device or default_device()
    return LLM(args.model, device=device, threads=args.threads, **given, **options)


def show(llm: LLM, prompt: Prompt, options: dict[str, Any]) -> str:
    """Print an answer as it is drawn; what it took goes to stderr. Ctrl-C ends it."""
    answer = llm.answer(prompt, **options)
    start = Tick.now()
    first, known = start, 0
    pieces = llm.follow(answer)
    try:
        for piece in pieces:
            if not known:
                first, known = Tick.now(), len(answer.ids)
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        pieces.close()  # pyright: ignore[reportAttributeAccessIssue]
    print(flush=True)
    if not answer.ids:
        print("stopped before the first token", file=sys.stderr)
        return ""
    reading, drawing = first.seconds_since(start), Tick.now().seconds_since(first)
    print(_took(answer, reading, len(answer.ids) - known, drawing), file=sys.stderr)
    return answer.text or ""


def _took(answer: Any, reading: float, more: int, drawing: float) -> str:
    """``37 tokens read in 0.4 s (12 known before); 120 drawn at 88.1 tokens/s``, the rate of the
    ``more`` tokens after the first piece of text, which took ``drawing`` seconds."""
    known = f" ({answer.cached} known before)" if answer.cached else ""
    count = len(answer.ids)
    rate = f" at {more / drawing:.1f} tokens/s" if more > 0 and drawing > 0 else ""
    told = f"{len(answer.prompt)} tokens read in {reading:.2f} s{known}; {count} drawn{rate}"
    right = f", {answer.accepted} of {answer.drafted} drafted were right" if answer.drafted else ""
    return told + right
