"""The exceptions that RLX raises, all under one root.

    RlxError
    ├─ GraphError            wrong use of the graph API (also a ValueError)
    │  ├─ ShapeError         shapes that do not fit together
    │  ├─ DTypeError         element types that do not fit together (also a TypeError)
    │  └─ NameError          a name that is unknown, missing or used twice
    │     └─ UnknownOpError  a method that is no op (also an AttributeError)
    ├─ KnobError             an environment variable with a value that it cannot have
    ├─ IRError               malformed IR text, or IR that a verifier refuses
    ├─ PassError             a compiler pass that failed
    ├─ UnsupportedError      valid, but not on this target or not yet (also a NotImplementedError)
    ├─ DeviceError           a device that is unknown or unavailable
    │  ├─ DeviceLostError    a device that failed, or was taken away, at work
    │  └─ OutOfMemoryError   a device has too little memory left (also a MemoryError)
    ├─ ToolchainError        MLIR, LLVM or an assembler is missing or refused its input
    ├─ FaultError            a run met bad data: an index out of range, a loop over its limit
    │  └─ NonFiniteError     a loss or gradient that is nan or infinite
    ├─ ModelError            a model directory that cannot be loaded
    ├─ CheckpointError       a checkpoint that cannot be written, read or used
    ├─ TraceError            a trace that cannot be started or written
    └─ ArtifactError         a compiled artifact that is damaged, or not for this machine or version

A message says where (the user's own file and line, where one is known), what was found, what was
expected, and what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

__all__ = [
    "ArtifactError",
    "CheckpointError",
    "DTypeError",
    "DeviceError",
    "DeviceLostError",
    "FaultError",
    "GraphError",
    "IRError",
    "KnobError",
    "KnobWarning",
    "ModelError",
    "NameError",
    "NonFiniteError",
    "OutOfMemoryError",
    "PassError",
    "RlxError",
    "ShapeError",
    "ToolchainError",
    "TraceError",
    "UnknownOpError",
    "UnsupportedError",
    "a_type",
    "among",
    "did_you_mean",
    "no_attribute",
    "shown",
    "unknown_option",
]


class RlxError(Exception):
    """Root of every error that RLX raises on purpose.

    ``location`` is the user's ``(file, line)``; it is put before the message as ``file:line: ``.
    ``partly_run`` says whether a part of a run was done: what it writes in place, such as donated
    arrays, may then hold old and new values.
    """

    partly_run: bool = False

    def __init__(self, message: str, location: tuple[str, int] | None = None) -> None:
        self.message = message
        self.location = location
        super().__init__(_placed(message, location))

    def at(self, location: tuple[str, int]) -> RlxError:
        """The error itself, now with a place."""
        self.location, self.args = location, (_placed(self.message, location),)
        return self


def _placed(message: str, location: tuple[str, int] | None) -> str:
    return f"{location[0]}:{location[1]}: {message}" if location else message


class GraphError(RlxError, ValueError):
    """The graph API was used in a way that has no meaning.

    What to do: go to the line that the message names; it says what was expected there.
    """


class ShapeError(GraphError):
    """Shapes that do not fit together, or not with an attribute.

    What to do: compare the shapes in the message; ``reshape``, ``transpose`` or ``expand`` one of
    them. A symbolic dim equals only itself: bind it with ``dims={...}`` if it has a size.
    """


class DTypeError(GraphError, TypeError):
    """Element types that do not fit together, or that an op does not take.

    What to do: ``cast`` an operand; nothing is converted silently. ``rlx-opt --explain=OP`` lists
    the element types of an op.
    """


class NameError(GraphError, KeyError):
    """A name of an input, param, dim or dtype that is unknown, missing or used twice.

    What to do: the message lists the names that there are, or suggests the nearest.
    """

    # KeyError would print the repr of its argument.
    __str__ = Exception.__str__


class UnknownOpError(NameError, AttributeError):
    """A method of a graph or value that is neither an op nor anything else of theirs.

    What to do: the message has the nearest name; docs/ops.md lists the ops.
    """


class KnobError(RlxError, ValueError):
    """An environment variable (``rlx.knobs``) has a value that it cannot have.

    What to do: the message says what the variable takes; unset, it has its default.
    """


class KnobWarning(UserWarning):
    """An environment variable has a name that begins as RLX's do, and that RLX does not read.

    What to do: the message has the nearest name; docs/knobs.md lists all.
    """


class IRError(RlxError):
    """IR text that does not parse, or IR that a verifier refuses.

    What to do: ``rlx-opt FILE`` shows the place in the text. ``Graph.to_mlir()`` prints valid text.
    """


class PassError(RlxError):
    """A compiler pass failed: a defect of RLX, or IR that the pass was not made for.

    What to do: report it with the reproducer that rlx-opt writes, which holds the IR before the
    pass. ``--disable-rule`` finds the rule that is to blame, and leaves it out.
    """


class UnsupportedError(RlxError, NotImplementedError):
    """Something valid that this target or this version cannot do.

    What to do: the message says what is missing; another target, element type or op may have it.
    """


class DeviceError(RlxError):
    """A device that is unknown, or not available on this machine.

    What to do: take one of those that the message lists.
    """


class DeviceLostError(DeviceError):
    """A device failed at work, or was taken away: what was in its memory is gone.

    What to do: compile again, which opens the device anew, or take another device. ``GraphDevices``
    does so by itself.
    """


class OutOfMemoryError(DeviceError, MemoryError):
    """A device has not as much memory left as was asked for. What it holds stays usable.

    What to do: drop compiled graphs that are not needed, or take smaller batches.
    """


class ToolchainError(RlxError):
    """A part of the toolchain is missing or refused its input.

    What to do: install what the message names. What a tool refused is a defect of RLX: report it.
    """


class FaultError(RlxError):
    """Data met at run time for which the op has no result, such as an index out of range.

    What to do: the message names the op's line, and where it can be told the index that was found
    and the input that it comes from; check what is fed to it.
    """

    partly_run = True

    @classmethod
    def at_site(
        cls, sites: Sequence[tuple[str, str, int]], code: int, site: int, detail: str = ""
    ) -> FaultError:
        """The error of a code that a kernel recorded for a site: the message, file and line there.
        A kernel with several messages has as many sites in a row; its codes count from 1."""
        number = site + code - 1
        if not 0 <= number < len(sites):
            return cls(f"a kernel reported fault {code} at the unknown site {site}")
        message, file, line = sites[number]
        return cls(f"{message}: {detail}" if detail else message, (file, line))


class NonFiniteError(FaultError):
    """A loss or a gradient of a training step is nan or infinite. Nothing was updated by it.

    What to do: the message names the op that made it, its line and its operands. Common causes are
    a log or a division of 0, a learning rate that is too high, and f16 without a loss scale.
    """


class ModelError(RlxError):
    """A model directory that is incomplete or not of a supported kind.

    What to do: the message names the file and what was expected in it.
    """


class CheckpointError(RlxError):
    """A checkpoint that cannot be written or read, or that is of another training run.

    What to do: the message says which file, and which tensor does not fit the graph or the
    optimiser; the checkpoint before is still there.
    """


class TraceError(RlxError):
    """A trace cannot be started, as another is on, or its file cannot be written.

    What to do: the message says which trace is in the way, or which file cannot be written.
    """


class ArtifactError(RlxError):
    """A compiled artifact that is damaged, or made for another machine or version.

    What to do: the message says what was found; compile the graph again with this version.
    """


def unknown_option(name: str, known: Collection[str]) -> GraphError:
    """The error of an option that there is not."""
    hint = did_you_mean(name, known)
    return GraphError(f"no option is called {name!r}{hint}; there are {', '.join(known)}")


def a_type(value: Any) -> str:
    """The name of the type of a value with its article: ``a list``, ``an int``."""
    name = type(value).__name__
    vowel = name[:1].lower() in "aeiou" and not name.startswith("uint")
    return f"{'an' if vowel or name == 'ndarray' else 'a'} {name}"


def no_attribute(module: str, name: str, known: Collection[str]) -> AttributeError:
    """The error of a name that a module has not. Python itself asks for names such as __path__."""
    hint = "" if name.startswith("_") else did_you_mean(name, known)
    if not hint and not name.startswith("_"):
        hint = f"; there are {', '.join(known)}"
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}")


def among(name: Any, known: Collection[Any]) -> str:
    """The end of a message on a name that is not among those that are known: the nearest, if one is
    near, and all of them. One alone is said once."""
    hint, names = did_you_mean(name, known), ", ".join(map(repr, known)) or "none"
    if len(known) == 1:
        return hint or f"; there is {names}"
    return f"{hint}; there are {names}"


def did_you_mean(name: Any, known: Iterable[str], least: float = 0.6) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known name, upper and lower case being the
    same, or an empty string. ``name`` is what was given for one, of whatever type; ``least`` how
    near a name must be, from 0 to 1."""
    import difflib

    if not isinstance(name, str) or len(name) > 100:
        return ""
    folded = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=least)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""


def shown(value: Any) -> str:
    """A value in a message: its repr, or ``a TYPE`` where that is long, of several lines or no help
    (an address), or cannot be made."""
    try:
        text = repr(value)
    except Exception:  # whatever a __repr__ of somebody else's raises
        text = ""
    plain = text and len(text) <= 60 and "\n" not in text and " at 0x" not in text
    return text if plain else a_type(value)
