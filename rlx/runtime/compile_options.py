"""The options of a compile in one object, beside them what a session and a graph say by
themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, Any

from rlx.base.frozen import frozen
from rlx.errors import GraphError, a_type, unknown_option
from rlx.ir.builders import public
from rlx.ir.graph import Graph
from rlx.lowering.compilation import Options
from rlx.precision import check_policy, check_precision
from rlx.runtime.claims import checked_claim, claimed_graph

if TYPE_CHECKING:
    from rlx.compiler.graph_module import GraphModule
    from rlx.runtime.session import CompiledGraph, Session

__all__ = ["CompileOptions", "compile_with"]

Source = Any
"""A graph or a module."""


@public
@frozen
class CompileOptions(Options):
    """``Options``, and for ``Session.compile_with`` what is of the session or the graph elsewhere.

    ``precision`` and ``policy`` take the place of the session's (the policy of both), ``dims`` are
    sizes of symbolic dims, and ``supported_ops`` are names of ops to which the graph is rewritten
    before it is compiled; UnsupportedError if it cannot be.
    """

    precision: str | None = None
    policy: str | Mapping[str, str] | None = None
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    supported_ops: Sequence[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.precision is not None:
            check_precision(self.precision)
        if self.policy is not None:
            check_policy(self.policy)
        if self.supported_ops is not None:
            checked_claim(self.supported_ops, "supported_ops")

    def with_options(self, **changed: Any) -> CompileOptions:
        """The same with some fields changed; GraphError for one that there is not."""
        known = [f.name for f in fields(self)]
        if unknown := [name for name in changed if name not in known]:
            raise unknown_option(unknown[0], known)
        return replace(self, **changed)


def compile_with(
    session: Session, source: Source, options: Options, dims: Mapping[str, int] | None
) -> CompiledGraph:
    """A graph or a module compiled by options in one object."""
    if not isinstance(options, Options):
        kind = a_type(options)
        raise GraphError(f"compile_with takes rlx.CompileOptions, found {kind}; write"
                         " compile(graph, fuse=False) for options by name")  # fmt: skip
    plain = {f.name: getattr(options, f.name) for f in fields(Options)}
    if isinstance(options, CompileOptions):
        session = _under(session, options)
        dims = {**options.dims, **(dims or {})} or None
        if options.supported_ops is not None:
            claim = checked_claim(options.supported_ops, "supported_ops")
            graph: Graph = source if isinstance(source, Graph) else source.graph()
            source = claimed_graph(graph, claim, session.device)
    if isinstance(source, Graph):
        return session.compile(source, dims=dims, **plain)
    module: GraphModule = source
    return session.compile_module(module, dims=dims, **plain)


def _under(session: Session, options: CompileOptions) -> Session:
    """The session with the precision and the policy of the options."""
    if options.precision is not None:
        session = session.with_precision(options.precision)
    return session if options.policy is None else session.with_policy(options.policy)
