"""The entry point of rlx-opt. What loads MLIR is imported when it is needed."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from rlx.errors import DeviceError, RlxError
from rlx.tools.opt.codes import DONE, INTERNAL, INTERRUPTED, REFUSED, USAGE
from rlx.tools.opt.flags import UsageError, read_flags

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    debug = False
    try:
        args = read_flags(sys.argv[1:] if argv is None else argv)
        debug = args.debug
        return _answer(args) if _asks(args) else _transform(args)
    except UsageError as e:
        return _fail(str(e), USAGE)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader has what it wants; Python would complain once more as it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return REFUSED
    except RlxError as e:
        if debug:
            raise
        return _fail(str(e), REFUSED)
    except OSError as e:
        return _fail(f"{e.filename}: {e.strerror}" if e.filename else str(e), REFUSED)
    except Exception as e:
        if debug:
            raise
        return _fail(f"internal error: {type(e).__name__}: {e}; --debug shows where", INTERNAL)


def _fail(message: str, code: int) -> int:
    print(f"rlx-opt: {message}", file=sys.stderr)
    return code


def _transform(args: Namespace) -> int:
    from rlx.targets import PROJECTS

    if args.target.partition(":")[0] in PROJECTS:
        return _project(args)
    from rlx.tools.opt.driver import Driver

    if args.trace is None:
        return Driver(args).run()
    from rlx.tracing import trace

    with trace(args.trace):
        return Driver(args).run()


def _project(args: Namespace) -> int:
    """Print a file of the sources that a graph becomes."""
    from rlx.compiler.project import project_of
    from rlx.targets import find_project
    from rlx.text.files import decode
    from rlx.text.read import parse_graph
    from rlx.tools.opt.inputs import read_input
    from rlx.tools.opt.output import write

    try:
        found = find_project(args.target)
    except DeviceError as e:
        raise UsageError(f"--target={args.target}: {e.message}") from None
    assert found is not None
    name, own, features = found
    if args.emit not in own.STAGES:
        raise UsageError(
            f"target {name} has no stage {args.emit!r}; it has {', '.join(own.STAGES)}, of the hir"
            " that rlx.save writes"
        )
    if args.passes or args.pass_pipeline is not None:
        raise UsageError(f"target {name} takes the graph as it is: give no passes")
    given = read_input(args.input)
    text = decode(given, args.input) if isinstance(given, bytes) else given
    made = project_of(parse_graph(text, args.input), {}, name, own, features)
    write(made.files[own.STAGES[args.emit]], args.output)
    return DONE


def _asks(args: Namespace) -> bool:
    return bool(args.version or args.list_passes or args.show_dialects or args.explain)


def _answer(args: Namespace) -> int:
    """Print what was asked for instead of IR."""
    from rlx.tools.opt import about

    if args.version:
        text = about.versions()
    elif args.list_passes:
        text = about.passes()
    elif args.show_dialects:
        text = about.dialects()
    else:
        text = about.explain(args.explain)
    print(text)
    return DONE
