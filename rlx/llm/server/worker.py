"""The thread that draws answers, and what it tells those who wait for them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rlx.base.frozen import frozen
from rlx.llm.answer import Answer, Finish
from rlx.llm.model import LLM
from rlx.llm.sampling import Drawn
from rlx.llm.server.metrics import Metrics

__all__ = ["Event", "Job", "Worker"]

T = TypeVar("T")


@frozen
class Event:
    """A token more of the answer with a number, the text that is known by it, and what ended the
    answer, if that was the last. ``error`` is why no answer goes on."""

    index: int
    text: str = ""
    drawn: Drawn | None = None
    finish: Finish | None = None
    error: BaseException | None = None


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


class Worker:
    """Draws answers in a thread of its own. Others may use the model beside it: what their steps
    draw of its answers is told as well."""

    def __init__(self, llm: LLM, metrics: Metrics) -> None:
        self.llm, self.metrics = llm, metrics
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._owners: dict[int, tuple[Job, int]] = {}
        self._thread = threading.Thread(target=self._run, name="rlx-serve", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End all answers, and the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def submit(self, job: Job) -> None:
        """Draw the answers of a job."""
        self._do(lambda: self._add(job))

    def cancel(self, job: Job) -> None:
        """End the answers of a job that are not drawn yet; their pages are free before the next
        step."""
        job.gone = True
        self._do(lambda: self._end(job))

    async def call(self, function: Callable[[], T]) -> T:
        """What a function gives that uses the model, between two steps."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def told(method: Callable[[Any], None], value: Any) -> None:
            if not future.done():  # else who waited is gone
                method(value)

        def work() -> None:
            try:
                found = function()
            except Exception as e:
                loop.call_soon_threadsafe(told, future.set_exception, e)
            else:
                loop.call_soon_threadsafe(told, future.set_result, found)

        self._do(work)
        return await future

    # -- in the thread ---------------------------------------------------------------------

    def _do(self, action: Callable[[], None]) -> None:
        with self._wake:
            self._inbox.append(action)
            self._wake.notify()

    def _run(self) -> None:
        batch = self.llm.batch
        while True:
            with self._wake:
                while not (self._inbox or self._owners or self._stopping):
                    self._wake.wait()
                actions = list(self._inbox)
                self._inbox.clear()
            with self.llm.lock:
                for action in actions:
                    action()
                if self._stopping:
                    for name in [*self._owners]:
                        batch.cancel(name)
                    return
                failed = None
                try:
                    if self._owners:
                        batch.step()
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
            job.loop.call_soon_threadsafe(job.events.put_nowait, Event(0, error=e))

    def _end(self, job: Job) -> None:
        for name in job.names:
            if self._owners.pop(name, None) is not None:
                self.llm.batch.cancel(name)

    def _fail(self, error: Exception) -> None:
        for name, (job, index) in [*self._owners.items()]:
            self.llm.batch.cancel(name)
            job.loop.call_soon_threadsafe(job.events.put_nowait, Event(index, error=error))
        self._owners.clear()

    def _tell(self) -> None:
        """Give each the tokens that it has more, in whichever thread they were drawn; those of one
        event loop by one call."""
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
                events.append(Event(index, answer.take(), new[-1], answer.finish))
                told.setdefault(job.loop, []).extend((job, event) for event in events)
        for loop, pairs in told.items():
            loop.call_soon_threadsafe(_deliver, pairs)


def _deliver(events: Sequence[tuple[Job, Event]]) -> None:
    for job, event in events:
        job.events.put_nowait(event)
