"""Traces: what ran when and on which thread, in the JSON that Perfetto and chrome://tracing open.

    with rlx.trace("run.json"):
        f.run(feeds)

``RLX_TRACE=run.json`` traces a whole process. Stages of a compile are spans of this module; what
the native runtime records comes from a ``Source``, which that registers. The file is replaced as a
whole whenever it is written, so that it is valid JSON at any time.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import warnings
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rlx import knobs
from rlx.base.clock import Tick
from rlx.errors import TraceError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Event", "Recording", "Source", "Trace", "add_source", "span", "trace"]

MAX_SPANS = 1 << 16
"""Spans that a trace keeps of Python's side."""


class Event(NamedTuple):
    """Something that took time on one thread: nanoseconds of ``Tick``, and ``args`` as JSON text.

    Events of one thread lie inside one another or apart; ``depth`` orders those of equal times.
    """

    begin: int
    end: int
    depth: int
    thread: int
    name: str
    category: str
    args: str = "{}"


class Recording(NamedTuple):
    """What a source recorded: events, names of threads, and how many events had no room."""

    events: Iterable[Event]
    threads: dict[int, str]
    dropped: int


class Source(Protocol):
    """Something outside this module that records events."""

    def start(self) -> None:
        """Record from now on; what was recorded before is let go."""
        ...

    def stop(self) -> None:
        """Record no more."""
        ...

    def recorded(self) -> Recording:
        """What was recorded since the start."""
        ...


class _Session:
    """One trace: its file, when it began, and the spans so far."""

    def __init__(self, path: Path) -> None:
        self.path, self.start = path, Tick.now()
        self.spans: list[Event] = []
        self.threads: dict[int, str] = {}
        self.dropped = 0

    @contextmanager
    def span(self, name: str, category: str, args: dict[str, Any]) -> Generator[None]:
        begin = Tick.now()
        try:
            yield
        finally:
            end, thread = Tick.now(), threading.get_native_id()
            self.threads.setdefault(thread, threading.current_thread().name)
            if len(self.spans) < MAX_SPANS:
                depth = -1  # outside what the runtime records
                text = json.dumps(args)
                self.spans.append(Event(begin.ns, end.ns, depth, thread, name, category, text))
            else:
                self.dropped += 1


class Trace:
    """``rlx.trace``: one trace of the process at a time."""

    def __init__(self) -> None:
        self._session: _Session | None = None
        self._sources: list[Source] = []
        self._lock = threading.RLock()
        self._at_exit = False

    @contextmanager
    def __call__(self, path: str | os.PathLike[str]) -> Generator[None]:
        """Trace what runs in the block, in all threads, and write the file at its end.

        ``%p`` in the path stands for the process's number. TraceError if a trace is on already, or
        the file cannot be written.
        """
        self._start(path)
        try:
            yield
        finally:
            self._finish()

    def flush(self) -> None:
        """Write what was recorded so far; the trace goes on. TraceError if none is on."""
        with self._lock:
            if self._session is None:
                raise TraceError(
                    "no trace is on; set RLX_TRACE=FILE, or use `with rlx.trace(FILE):`"
                )
            self._write(self._session)

    def span(self, name: str, category: str, args: dict[str, Any]) -> AbstractContextManager[None]:
        """Record the time of a block, if a trace is on or RLX_TRACE asks for one."""
        session = self._session
        if session is None:
            path = knobs.trace.get()
            if not path:
                return _NOTHING
            with self._lock:
                session = self._session or self._start(path)
        return session.span(name, category, args)

    def add_source(self, source: Source) -> None:
        """Record from a source too, from now on if a trace is on."""
        with self._lock:
            self._sources.append(source)
            if self._session is not None:
                source.start()

    # -- life of a trace -------------------------------------------------------------------

    def _start(self, path: str | os.PathLike[str]) -> _Session:
        from pathlib import Path

        with self._lock:
            if self._session is not None:
                raise TraceError(
                    f"a trace is being written to {self._session.path}, and there is one at a time;"
                    " unset RLX_TRACE, or end the other block first"
                )
            session = _Session(Path(os.fspath(path).replace("%p", str(os.getpid()))))
            # A file that cannot be written is known now and not when the work is done.
            _replace(session.path, _lines([], {}, session))
            if not self._at_exit:
                self._at_exit = True
                atexit.register(self._exit)
                if hasattr(os, "register_at_fork"):
                    os.register_at_fork(after_in_child=self._forked)
            for source in self._sources:
                source.start()
            self._session = session
            return session

    def _finish(self) -> None:
        with self._lock:
            session = self._session
            if session is None:
                return  # a forked child leaves the block
            for source in self._sources:
                source.stop()
            self._session = None
            self._write(session)

    def _exit(self) -> None:
        """At the end of the process an error is told, and nothing more can be done about it."""
        try:
            self._finish()
        except TraceError as e:
            warnings.warn(str(e), RuntimeWarning, stacklevel=1)

    def _forked(self) -> None:
        """The trace is the parent's. Another thread of it may have held the lock."""
        self._lock, self._session = threading.RLock(), None

    def _write(self, session: _Session) -> None:
        events, threads = list(session.spans), dict(session.threads)
        dropped = session.dropped
        for source in self._sources:
            recording = source.recorded()
            events += recording.events
            threads = {**recording.threads, **threads}
            dropped += recording.dropped
        # Outer events before the inner ones that begin with them.
        events.sort(key=lambda e: (e.begin, -e.end, e.depth))
        _replace(session.path, _lines(events, threads, session, dropped))
        if dropped:
            warnings.warn(
                f"the trace {session.path} lacks {dropped} events that had no room; trace less at"
                " a time, by `with rlx.trace(FILE):`",
                RuntimeWarning,
                stacklevel=1,
            )


_NOTHING = nullcontext()


def _lines(
    events: Iterable[Event], threads: dict[int, str], session: _Session, dropped: int = 0
) -> Iterator[str]:
    """The file, an event a line. Times are microseconds from the start of the trace."""
    pid = os.getpid()
    named = [("process_name", pid, os.path.basename(sys.argv[0]) or "python")]
    named += [("thread_name", thread, name) for thread, name in sorted(threads.items())]
    yield '{"displayTimeUnit": "ns",\n'
    yield f'"otherData": {json.dumps({"dropped_events": dropped})},\n"traceEvents": [\n'
    yield ",\n".join(
        json.dumps({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}})
        for what, tid, name in named
    )
    for e in events:
        yield (
            f',\n{{"ph": "X", "name": {json.dumps(e.name)}, "cat": "{e.category}", "pid": {pid},'
            f' "tid": {e.thread}, "ts": {_micros(e.begin - session.start.ns)},'
            f' "dur": {_micros(e.end - e.begin)}, "args": {e.args}}}'
        )
    yield "\n]}\n"


def _micros(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _replace(path: Path, lines: Iterable[str]) -> None:
    """Write a file beside ``path`` and put it in its place, whole or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.writelines(lines)
        os.replace(beside, path)
    except OSError as e:
        raise TraceError(f"the trace cannot be written to {path}: {e.strerror or e}") from None
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


trace = Trace()
"""The trace of this process."""

add_source = trace.add_source


def span(name: str, category: str = "compile", **args: Any) -> AbstractContextManager[None]:
    """Record the time of a block under a name, with ``args`` that JSON can hold. Where nothing is
    traced it costs a microsecond."""
    return trace.span(name, category, args)
