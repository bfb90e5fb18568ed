"""``rlx.jit``: a function of arrays, traced and compiled once for all calls that are alike."""

from __future__ import annotations

import functools
import inspect
import threading
import types
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from rlx.errors import GraphError, a_type, shown
from rlx.functions.arguments import Signature
from rlx.functions.trees import Branch, Leaf, Tree, flatten, rebuild, taker
from rlx.ir.arrays import array_of
from rlx.ir.builders import located, public
from rlx.ir.graph import Graph
from rlx.ir.location import located as placed
from rlx.ir.value import Value
from rlx.types import TensorType

if TYPE_CHECKING:
    from typing import Unpack

    from rlx.compiler.graph_module import HirModule
    from rlx.inspect import PipelineInspect
    from rlx.lowering.compilation import OptionArgs
    from rlx.runtime.session import CompiledGraph, Session

__all__ = ["Function", "jit", "tracing"]

MAX_KEPT = 256
"""Compiled graphs, and shapes that the short way knows, of one function; the oldest goes first."""


class _Traces(threading.local):
    depth = 0


_traces = _Traces()


def tracing() -> bool:
    """Whether this thread is tracing a function."""
    return _traces.depth > 0


@contextmanager
def _within_trace() -> Generator[None]:
    _traces.depth += 1
    try:
        yield
    finally:
        _traces.depth -= 1


class _Entry:
    """A compiled graph, and how its results become those of the function."""

    __slots__ = ("compiled", "flat", "run", "single", "tree")

    def __init__(self, compiled: CompiledGraph, tree: Tree) -> None:
        self.compiled, self.tree, self.run = compiled, tree, compiled.run_slots
        self.single = isinstance(tree, Leaf)
        children = tree.children if isinstance(tree, Branch) else ()
        self.flat = all(isinstance(c, Leaf) for c in children)

    def result(self, values: Sequence[Any]) -> Any:
        """What the function gives, of the arrays that the graph gave."""
        tree = self.tree
        if not isinstance(tree, Branch):
            return values[0]
        if self.flat and tree.kind is dict:
            return dict(zip(tree.names, values, strict=True))
        if self.flat and tree.kind is tuple:
            return tuple(values)
        return rebuild(tree, iter(values))


class _Spelling:
    """A way in which calls are written: how many arguments by position, which by name, and their
    structure. ``entries`` has what is compiled, by the shapes of the leaves."""

    __slots__ = ("by_name", "by_position", "entries", "leaves")

    def __init__(self, given: list[tuple[str, Tree]], count: int) -> None:
        self.by_position = [tree for _, tree in given[:count]]
        self.by_name = given[count:]
        self.entries: dict[tuple[Any, ...], _Entry] = {}
        self.leaves = taker(self.by_position, self.by_name)


@public
class Function:
    """A function that ``rlx.jit`` made: it is called as ever, with arrays, and runs compiled.

    The first call of a kind traces the function: it runs once on Values in the place of arrays, and
    what it does to them becomes a graph, which is compiled. Calls are of one kind if their arrays
    have the same places, shapes and element types, and all else is equal. Called with Values, in
    another function's trace or with those of a graph, it adds to their graph.
    """

    UNCHECKED = ("__call__",)

    def __init__(
        self,
        function: Callable[..., Any],
        static: str | Iterable[str] = (),
        device: str | None = None,
        **options: Unpack[OptionArgs],
    ) -> None:
        if not callable(function):
            raise GraphError(f"jit takes a function, found {shown(function)}")
        if options:
            from rlx.lowering.compilation import Options

            Options.of(options)  # which refuses one that there is not, here and not at a call
        functools.update_wrapper(self, function)
        self.function, self.device, self.options = function, device, options
        self.signature = Signature(function, static)
        code = getattr(inspect.unwrap(function), "__code__", None)
        self._place = (code.co_filename, code.co_firstlineno) if code is not None else None
        self._entries: dict[tuple[Branch, tuple[TensorType, ...]], _Entry] = {}
        self._last: _Spelling | None = None
        self._session: Session | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it on arrays. Raises what the function raises, and what a compile and a run do."""
        last = self._last
        if last is not None:
            # The short way. It asks for no more than tells calls apart: the runtime sees to the
            # element types, and what it refuses goes the long way.
            leaves, entry = None, None
            try:
                leaves = last.leaves(args, kwargs)
                if leaves:
                    entry = last.entries.get(tuple([a.shape for a in leaves]))
            except (AttributeError, KeyError, TypeError):
                pass  # a leaf that is no array, or a key that is not there
            if leaves and entry is not None:
                try:
                    values = entry.run(*leaves)
                    return values[0] if entry.single else entry.result(values)
                except GraphError:
                    pass
        return self._call(args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<rlx.jit of {self.signature.name}: {len(self._entries)} compiled>"

    def graph(self, *args: Any, **kwargs: Any) -> Graph:
        """The graph that a call with these arguments is compiled from. Arrays may be anything with
        ``shape`` and ``dtype``. Its inputs are called as the arguments (``x``, ``params.w``), its
        outputs by the keys of the dict that the function gives."""
        leaves: list[Any] = []
        tree = self.signature.tree(args, kwargs, leaves)
        return self._traced(tree, self.signature.types(tree, leaves))[0]

    def lower(self, *args: Any, **kwargs: Any) -> HirModule:
        """That graph as a module of hir, which ``to`` takes to later levels of the compiler."""
        from rlx.compiler.graph_module import GraphModule

        return GraphModule.of(self.graph(*args, **kwargs))

    def inspect(self, *args: Any, **kwargs: Any) -> PipelineInspect:
        """All levels of the compile of that graph (``rlx.inspect_pipeline``)."""
        from rlx.compiler.observe import inspect_pipeline
        from rlx.runtime.backend import default_device

        target = self.device or default_device()
        return inspect_pipeline(self.graph(*args, **kwargs), target, **self.options)

    @property
    def compiled(self) -> list[CompiledGraph]:
        """What is compiled so far, in the order in which it was."""
        return [entry.compiled for entry in self._entries.values()]

    # -- the long way ----------------------------------------------------------------------

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves: list[Any] = []
        tree = located(self.signature.tree)(args, kwargs, leaves)
        if any(isinstance(a, Value) for a in leaves):
            return self.function(*args, **kwargs)
        arrays = [located(array_of)(a, n) for a, n in zip(leaves, tree.paths(""), strict=True)]
        key = (tree, located(self.signature.types)(tree, arrays))
        entry = self._entries.get(key)
        if entry is None:
            entry = self._compiled(*key)
            _keep(self._entries, key, entry)
        feeds = {str(v.name): a for v, a in zip(entry.compiled.graph.inputs, arrays, strict=True)}
        found = entry.result(entry.compiled.run(feeds))
        spelling = _Spelling(self.signature.spelled(tree), len(args))
        last = self._last
        if last is None or not _same(last, spelling):
            self._last = last = spelling
        _keep(last.entries, tuple([a.shape for a in arrays]), entry)
        return found

    def _compiled(self, tree: Branch, given: tuple[TensorType, ...]) -> _Entry:
        from rlx.runtime.session import Session

        graph, out = self._traced(tree, given)
        if self._session is None:
            self._session = Session(self.device)
        return _Entry(self._session.compile(graph, **self.options), out)

    def _traced(self, tree: Branch, given: tuple[TensorType, ...]) -> tuple[Graph, Tree]:
        """The graph of the function for arguments of this structure, and that of what it gives."""
        name = self.signature.name
        graph = Graph(name)

        def leaves() -> list[Value]:
            pairs = zip(_distinct(tree.paths("")), given, strict=True)
            return [graph.input(n, t) for n, t in pairs]

        if self._place is None:
            values = leaves()
        else:
            with placed(self._place):
                values = leaves()
        with _within_trace():
            result = self.signature.apply(self.function, rebuild(tree, iter(values)))
        found: list[Any] = []
        out = located(flatten)(result, found, sort=False)
        if not found:
            raise GraphError(
                f"{name} gives {shown(result)}, which holds no array; return what it computes",
                self._place,
            )
        outputs = [v if isinstance(v, Value) else _constant(graph, v, name) for v in found]
        names = list(_distinct(out.paths("")))
        named = names != [""] and names != [str(i) for i in range(len(names))]
        graph.set_outputs(dict(zip(names, outputs, strict=True)) if named else outputs)
        return graph, out


@overload
def jit(function: Callable[..., Any], *, static: str | Iterable[str] = (),
        device: str | None = None, **options: Unpack[OptionArgs]) -> Function: ...  # fmt: skip
@overload
def jit(*, static: str | Iterable[str] = (), device: str | None = None,
        **options: Unpack[OptionArgs]) -> Callable[[Callable[..., Any]], Function]: ...  # fmt: skip
@located
def jit(
    function: Any = None,
    *,
    static: str | Iterable[str] = (),
    device: str | None = None,
    **options: Unpack[OptionArgs],
) -> Any:
    """The function compiled: ``@rlx.jit``, or ``@rlx.jit(static="n")``.

    Arguments are arrays, in any dicts, lists, tuples and dataclasses; all else is static, and so
    are those that ``static`` names: another value is another compile. ``Annotated[Array, ("batch",
    64)]`` on a parameter names dims that the graph is to keep symbolic. ``device`` is that of a
    Session, ``options`` those of its ``compile``.

    Raises GraphError for what is no function, for a ``static`` that names no parameter, and for
    annotations that cannot be read. Calls raise GraphError for arguments that the function does not
    take or that are neither arrays nor have a hash, and for a function that gives no array;
    ShapeError for an array of another rank than its annotation; DTypeError for element types that
    RLX has not; DeviceError for a device that is not available.
    """
    if function is None:
        return lambda f: Function(f, static, device, **options)  # pyright: ignore
    return Function(function, static, device, **options)


def _keep(entries: dict[Any, _Entry], key: Any, entry: _Entry) -> None:
    entries[key] = entry
    while len(entries) > MAX_KEPT:
        # Calls of other threads keep and drop entries meanwhile; a list is made at once.
        entries.pop(next(iter(list(entries)), key), None)


def _same(a: _Spelling, b: _Spelling) -> bool:
    return a.by_position == b.by_position and a.by_name == b.by_name


def _distinct(names: Iterable[str]) -> Iterable[str]:
    """The names, with a number behind those that were there before."""
    taken: set[str] = set()
    for name in names:
        free, n = name, 1
        while free in taken:
            n += 1
            free = f"{name}_{n}"
        taken.add(free)
        yield free


def _constant(graph: Graph, a: Any, name: str) -> Value:
    if not isinstance(a, np.ndarray | np.generic):
        raise GraphError(f"{name} gives {a_type(a)}, expected Values and NumPy arrays")
    return graph.constant(np.asarray(a))
