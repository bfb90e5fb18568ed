"""Python commands of the lit suite in forks of one process, which has imported what they need:
starting Python and importing MLIR takes most of the time of one.

    python forks.py NAME ARGUMENT...

does what ``python ARGUMENT...`` does: in a fork of the process that ``serve`` started by that name,
in the folder, with the environment and on the files of this one.
"""

import os
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 60
"""A command that hangs is ended then, and its test fails."""

MOST = 1 << 20
"""Bytes of a command: the arguments and the environment."""


def ask(name: str, arguments: list[str]) -> int:
    """Have a command run; returns its exit code."""
    environment = [f"{name}={value}" for name, value in os.environ.items()]
    words = [os.getcwd(), str(len(arguments)), *arguments, *environment]
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(f"\0{name}")
        socket.send_fds(s, ["\0".join(words).encode(errors="surrogateescape")], [0, 1, 2])
        s.shutdown(socket.SHUT_WR)
        code = s.recv(1)
    if not code:
        print("the command was killed: it crashed, or took too long", file=sys.stderr, flush=True)
        os.kill(os.getpid(), 9)  # which `not` does not take for a refusal
    return code[0]


def serve(environment: dict[str, str]) -> str:
    """Start the process that forks, which ends with the one that calls this; returns its name."""
    import secrets
    import subprocess

    name = f"rlx-lit-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(f"\0{name}")  # no file, so none is left behind
        s.listen(64)
        # It ends with its input: the pipe is never written to, and closed with this process.
        subprocess.Popen(
            [sys.executable, __file__, "--serve", str(s.fileno())],
            pass_fds=[s.fileno()], stdin=subprocess.PIPE, env=environment,
        )  # fmt: skip
    return name


def _accept(listening: socket.socket) -> None:
    import select
    import signal
    from importlib import import_module

    for name in ("filecheck.main", "rlx.tools.opt.driver"):
        import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listening, 0], [], [])
        if 0 in ready:
            return
        s, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.alarm(SECONDS)
            listening.close()
            os._exit(_command(s))
        s.close()


def _command(s: socket.socket) -> int:
    """Run the command of a client as the main program of this process; returns its exit code."""
    import atexit
    from io import TextIOWrapper

    data, files, _, _ = socket.recv_fds(s, MOST, 3)
    while more := s.recv(MOST):
        data += more
    folder, count, *words = data.decode(errors="surrogateescape").split("\0")
    arguments, environment = words[: int(count)], words[int(count) :]
    for n, file in enumerate(files):
        os.dup2(file, n)
        os.close(file)
    for n, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)  # which keeps in mind whether it could seek
        how = {"encoding": old.encoding, "errors": old.errors, "line_buffering": n == 2}
        stream = TextIOWrapper(open(n, f"{old.mode}b", closefd=False), **how)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(word.split("=", 1) for word in environment)
    code = _exit_code_of(lambda: _main(arguments))
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            code = code or 120  # as Python has it
    # What waits for the end of its input goes on, and only then what waits for this command.
    os.closerange(0, 3)
    s.send(bytes([code]))
    return code


def _main(arguments: list[str]) -> None:
    """What ``python ARGUMENTS`` does."""
    import runpy

    first, *rest = arguments
    if first == "-m":
        sys.argv[:], sys.path[0] = rest, os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv[:], sys.path[0] = ["-c", *rest[1:]], ""
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv[:], sys.path[0] = arguments, os.path.dirname(first)
        runpy.run_path(first, run_name="__main__")


def _exit_code_of(main: "Callable[[], None]") -> int:
    import traceback

    try:
        main()
    except SystemExit as e:
        if e.code is None or isinstance(e.code, int):
            return (e.code or 0) & 255
        print(e.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        _accept(socket.socket(fileno=int(sys.argv[2])))
    else:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
