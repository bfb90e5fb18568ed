"""The short way of a call, whose inputs are a dict of arrays exactly as declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.ir.results import by_name
from rlx.runtime.bindings import Bindings
from rlx.runtime.executable import FAILURES, Executable

__all__ = ["ShortWay"]

Array = np.ndarray[Any, Any]


class ShortWay:
    """Runs what the native runtime takes as it is. The long way is for the rest: it says what is
    wrong, or converts.

    It is apart from the compiled graph, a class with ``__getattr__``, of which Python finds every
    attribute many times as slowly.
    """

    __slots__ = ("_bound", "_feeds", "_names", "_places", "_unset", "executable", "program")

    def __init__(
        self,
        names: tuple[str, ...],
        executable: Executable | None,
        places: Sequence[tuple[str, int, int, int]] | None,
        bound: Bindings,
        given: tuple[Mapping[str, Any], Mapping[str, Any]],
    ) -> None:
        """``names`` are those of the outputs. A graph without symbolic sizes has one
        ``executable``, and its ``program`` if the native runtime takes arrays as they are; of
        another ``places`` are where sizes are found (``calls.places_of_sizes``), and ``bound``
        has the executables for some. ``given`` are the inputs that calls may leave out and the
        params without values, as they become."""
        self._names, self.executable, self._places, self._bound = names, executable, places, bound
        self._feeds, self._unset = given
        self.program = None
        if executable is not None and executable.direct:
            self.program = executable.program

    def find(self, inputs: Any) -> Executable | None:
        """The executable for a call that takes the short way, if it is there or a variant that is
        makes it; the long way finds or compiles another."""
        if self._feeds or self._unset:
            return None
        if self._places is None:
            return self.executable
        try:
            key = tuple([
                (inputs[name].shape[axis] - number) // factor
                for name, axis, factor, number in self._places
            ])  # fmt: skip
        except (AttributeError, IndexError, KeyError, TypeError):
            return None
        with self._bound.alone():
            return self._bound.bound(key)

    def _again(self) -> Executable | None:
        """The executable of the call before, which checks itself whether its sizes come again: that
        takes a fifth of the time in which ``find`` tells them."""
        if self._places is None or self._feeds or self._unset:
            return None
        return self._bound.latest()

    # Both as find and the executable's run_named, of which each call costs a twentieth of a short
    # one.

    def run(self, inputs: Any) -> list[Array] | None:
        """The results as new arrays; None, and nothing is run, if it is no short way."""
        program = self.program
        if program is None or self._feeds or self._unset:
            again = self._again()
            found = None if again is None else again.run_named(inputs)
            if found is None:
                executable = self.find(inputs)
                found = None if executable is None else executable.run_named(inputs)
        else:
            try:
                found = program.run_named(inputs)
            except FAILURES as failure:
                error = self._failed(failure)
                raise error from error.__cause__
        return by_name(found, self._names) if self._names and found is not None else found

    def run_into(self, inputs: Any, outputs: Any) -> bool:
        """Run into arrays exactly as declared; whether it was a short way, and was run."""
        program = self.program
        if program is None or self._feeds or self._unset:
            again = self._again()
            if again is not None and again.run_named_into(inputs, outputs):
                return True
            executable = self.find(inputs)
            return executable is not None and executable.run_named_into(inputs, outputs)
        try:
            return program.run_named_into(inputs, outputs)
        except FAILURES as failure:
            error = self._failed(failure)
            raise error from error.__cause__

    def _failed(self, failure: Exception) -> BaseException:
        assert self.executable is not None, "its program ran"
        return self.executable.failed(failure)
