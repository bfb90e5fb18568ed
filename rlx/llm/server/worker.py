"""The thread that draws answers, and what it tells those who wait for them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rlx import knobs
from rlx.base.frozen import frozen
from rlx.llm.answer import Answer, Finish
from rlx.llm.calls import Call
from rlx.llm.model import LLM
from rlx.llm.sampling import Drawn
from rlx.llm.server.fields import ApiError
from rlx.llm.server.metrics import Metrics

__all__ = ["Event", "Job", "Worker"]

T = TypeVar("T")

PATIENCE = 0.1
"""Seconds that a step waits at most for a loop that has not taken what it was told before."""


@frozen
class Event:
    """A token more of the answer with a number, the text and the calls that are known by it, and
    what ended the answer, if that was the last. ``error`` is why no answer goes on."""

    index: int
    text: str = ""
    drawn: Drawn | None = None
    finish: Finish | None = None
    error: BaseException | None = None
    calls: tuple[Call, ...] = ()


@frozen
class _Action:
    """What the thread is asked to do between two steps, and what is done with the reason if it does
    not."""

    run: Callable[[], None]
    refuse: Callable[[Exception], None]


class Job:
    """Answers that are drawn for one request. ``events`` has what comes of them."""

    def __init__(self, answers: Sequence[Answer], client: str) -> None:
        self.answers, self.client = list(answers), client
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.loop = asyncio.get_running_loop()
        self.names: list[int] = []
        self.told = [0] * len(self.answers)
        """How many tokens of each answer there have been events for."""
        self.gone = False

    def fail(self, error: Exception) -> None:
        """Tell that no answer goes on, and why."""
        _call_soon(self.loop, self.events.put_nowait, Event(0, error=error))


class Worker:
    """Draws answers in a thread of its own. Others may use the model beside it: what their steps
    draw of its answers is told as well. Once the thread has ended, whoever waits, and whoever asks,
    has an ApiError that says why."""

    def __init__(self, llm: LLM, metrics: Metrics) -> None:
        self.llm, self.metrics = llm, metrics
        self._inbox: deque[_Action] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._ended: ApiError | None = _unavailable("the server has not been started")
        self._owners: dict[int, tuple[Job, int]] = {}
        self._taken = threading.Event()
        self._taken.set()
        self._thread = threading.Thread(target=self._run, name="rlx-serve", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the thread runs, and draws answers."""
        return self._ended is None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._ended = None
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and all answers with an error."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def submit(self, job: Job) -> None:
        """Draw the answers of a job."""
        self._do(lambda: self._add(job), job.fail)

    def cancel(self, job: Job) -> None:
        """End the answers of a job that are not drawn yet; their pages are free before the next
        step."""
        job.gone = True
        self._do(lambda: self._end(job), lambda _: None)

    async def call(self, function: Callable[[], T]) -> T:
        """What a function gives that uses the model, between two steps. It is not called if who
        waits for it is gone by then."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def told(method: Callable[[Any], None], value: Any) -> None:
            if not future.done():  # else who waited is gone
                method(value)

        def refuse(error: Exception) -> None:
            _call_soon(loop, told, future.set_exception, error)

        def work() -> None:
            if future.cancelled():
                return
            try:
                found = function()
            except Exception as e:
                refuse(e)
            else:
                _call_soon(loop, told, future.set_result, found)

        self._do(work, refuse)
        return await future

    # -- in the thread ---------------------------------------------------------------------

    def _do(self, run: Callable[[], None], refuse: Callable[[Exception], None]) -> None:
        with self._wake:
            if self._ended is None:
                self._inbox.append(_Action(run, refuse))
                self._wake.notify()
                return
        refuse(self._ended)

    def _run(self) -> None:
        why = "the server failed: what draws answers has ended; start it again"
        try:
            self._draw()
            why = "the server is being stopped"
        finally:
            self._close(_unavailable(why))

    def _close(self, error: ApiError) -> None:
        """Tell all who wait, and end their answers."""
        with self._wake:
            self._ended = error
            actions = [*self._inbox]
            self._inbox.clear()
        for action in actions:
            action.refuse(error)
        with self.llm.lock:
            self._fail(error)

    def _draw(self) -> None:
        batch = self.llm.batch
        # Ranks that take part are told before they give up.
        patience = None if self.llm.decoder.team is None else knobs.comm_timeout.get() / 4
        while True:
            with self._wake:
                while not (self._inbox or self._owners or self._stopping):
                    if not self._wake.wait(patience):
                        break
                count = len(self._inbox)
            with self.llm.lock:
                for _ in range(count):
                    self._inbox[0].run()  # it stays until it is done, to be told if it is not
                    self._inbox.popleft()
                if self._stopping:
                    self.llm.close()
                    return
                failed = None
                try:
                    if self._owners:
                        batch.step()
                    else:
                        self.llm.idle()
                except Exception as e:  # whatever it is, those who wait are told
                    failed = e
                self._tell()
                if failed is not None:
                    self._fail(failed)

    def _add(self, job: Job) -> None:
        if job.gone:
            return
        try:
            for index, answer in enumerate(job.answers):
                name = self.llm.batch.add(answer, job.client)
                job.names.append(name)
                self._owners[name] = job, index
        except Exception as e:
            self._end(job)
            job.fail(e)

    def _end(self, job: Job) -> None:
        for name in job.names:
            if self._owners.pop(name, None) is not None:
                self.llm.batch.cancel(name)

    def _fail(self, error: Exception) -> None:
        for job in dict.fromkeys(job for job, _ in self._owners.values()):
            job.fail(error)
        for name in [*self._owners]:
            del self._owners[name]
            self.llm.batch.cancel(name)

    def _tell(self) -> None:
        """Give each the tokens that it has more, in whichever thread they were drawn; those of one
        event loop by one call. It waits up to ``PATIENCE`` until what was told before has been
        taken: else a model that is faster than the loop would have its tokens come in bursts, as
        Python runs one thread at a time."""
        told: dict[asyncio.AbstractEventLoop, list[tuple[Job, Event]]] = {}
        for name, (job, index) in [*self._owners.items()]:
            answer = job.answers[index]
            new: list[Drawn | None] = [*answer.drawn[job.told[index] :]]
            job.told[index] += len(new)
            self.metrics.tokens += len(new)
            if answer.finish is not None:
                del self._owners[name]
                new = new or [None]
            if new:
                events = [Event(index, drawn=drawn) for drawn in new[:-1]]
                text, calls = answer.take(), answer.take_calls()
                events.append(Event(index, text, new[-1], answer.finish, calls=calls))
                told.setdefault(job.loop, []).extend((job, event) for event in events)
        for loop, pairs in told.items():
            self._taken.wait(PATIENCE)
            self._taken.clear()
            if not _call_soon(loop, self._deliver, pairs):
                self._taken.set()

    def _deliver(self, events: Sequence[tuple[Job, Event]]) -> None:
        """In the loop: give events to the jobs that they are for."""
        self._taken.set()
        for job, event in events:
            job.events.put_nowait(event)


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *args: Any) -> bool:
    """Let a loop call a function; False if it has ended, with all who waited in it."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        return False
    return True


def _unavailable(why: str) -> ApiError:
    return ApiError(why, status=503, kind="server_error", code="unavailable")
