"""Control flow of the kernel builder: loops and branches, given as Python functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rlx.base.digest import digest
from rlx.codegen.complex import flat, gathered
from rlx.codegen.function import Function
from rlx.codegen.memory import ERROR, Memory
from rlx.codegen.reg import INDEX, Buffer, Reg
from rlx.types import DType, bool_, i32, i64

__all__ = ["ROUNDS_SITE", "ROW", "Control"]

ROW = 1 << 15
"""Blocks of a GPU's grid along x, where there are more: devices take less than 65536."""

ROUNDS_SITE = "rounds_site"
"""The size that brings the site of the fault that a loop was cut."""

Body = Callable[..., Sequence[Reg] | Reg | None]


class Control(Memory):
    """Structured control flow; a body is called once, while its region is open."""

    def parallel(self, body: Callable[[Reg], None]) -> None:
        """Run ``body(i)`` for every index of the launch's range that this call was given."""
        if self.target.serial:
            self.loop(self.reg("%begin", INDEX), self.reg("%end", INDEX), 1, body)
            return
        limit = self.size("range")
        i = self._block_number() * self.target.block + self.op("gpu.thread_id x", INDEX, 0)
        self.when(i < limit, lambda: body(i))

    def parallel_groups(self, count: int, wanted: Reg, body: Callable[[Reg, int], None]) -> None:
        """As ``parallel`` on a CPU: ``body(i, count)`` for neighbours from i on, if ``wanted``, and
        ``body(i, 1)`` for the others."""
        begin, end = (self.reg(name, INDEX) for name in ("%begin", "%end"))
        groups = self.select(wanted, end - (end - begin) % count, begin)
        self.loop(begin, groups, count, lambda i: body(i, count))
        self.loop(groups, end, 1, lambda i: body(i, 1))

    def parallel_spans(self, count: int, body: Callable[[Reg, Reg, Reg], None]) -> None:
        """As ``parallel`` on a CPU, of a range of rows of ``count``: ``body(row, begin, end)`` for
        all the neighbours of a row that this call was given."""
        begin, end = (self.reg(name, INDEX) for name in ("%begin", "%end"))

        def row(n: Reg) -> None:
            first = n * count
            body(n, self.maximum(begin - first, 0), self.minimum(end - first, count))

        self.loop(begin // count, (end + (count - 1)) // count, 1, row)

    def parallel_blocks(self, threads: int, body: Callable[[Reg, Reg], None]) -> None:
        """Run ``body(i, thread)`` for every index of a GPU's range by a block of ``threads``: they
        have the same i, may share memory, and wait for each other."""
        limit = self.size("range")
        self._block, self._points = threads, 1
        i, thread = self._block_number(), self.op("gpu.thread_id x", INDEX, 0)
        self.when(i < limit, lambda: body(i, thread))

    def _block_number(self) -> Reg:
        row, block = (self.op(f"gpu.block_id {axis}", INDEX, 0) for axis in "yx")
        return row * ROW + block

    def barrier(self) -> None:
        """Wait until all threads of the block are here, and see what they stored. Every one must
        come here."""
        self.line("gpu.barrier")

    def block_fold(
        self,
        thread: Reg,
        values: Sequence[Reg],
        combine: Callable[[int, Reg, Reg], Reg],
        width: int = 0,
        step: int = 1,
    ) -> list[Reg]:
        """What ``combine(n, a, b)`` makes of the n-th values of all threads of a block, in a fixed
        tree: every thread gets it. Their number is a power of two.

        With a ``width``, also a power of two, of each of so many threads that are ``step`` apart.
        """
        width = width or self._block // step
        rooms = self._fold_rooms([_held(v.dtype) for v in values])
        for room, value in zip(rooms, values, strict=True):
            self.store(self.cast(value, room.dtype), room, thread)
        self.barrier()
        whole = width * step == self._block
        place = thread if whole else thread % (width * step)
        half = width // 2 * step
        kinds = [v.dtype for v in values]
        while half >= step:
            fold = partial(self._fold_half, thread, half, rooms, kinds, combine)
            self.when(place < half, fold)
            self.barrier()
            half //= 2
        first = self.index(0) if whole else thread - place
        first = first + place % step if step > 1 else first
        found = [
            self.cast(self.load(room, first), dt) for room, dt in zip(rooms, kinds, strict=True)
        ]
        self.barrier()  # before the rooms are written again
        return found

    def _fold_rooms(self, dtypes: Sequence[DType]) -> list[Buffer]:
        """Shared memory for a value of each thread in each of these types; folds take turns."""
        rooms: list[Buffer] = []
        for dt in dtypes:
            free = [r for r in self._folds if r.dtype is dt and r not in rooms]
            if not free:
                free = [self.shared(dt, self._block)]
                self._folds += free
            rooms.append(free[0])
        return rooms

    def _fold_half(
        self,
        thread: Reg,
        half: int,
        rooms: Sequence[Buffer],
        kinds: Sequence[DType],
        combine: Callable[[int, Reg, Reg], Reg],
    ) -> None:
        for n, (room, dt) in enumerate(zip(rooms, kinds, strict=True)):
            a, b = (self.cast(self.load(room, at), dt) for at in (thread, thread + half))
            self.store(self.cast(combine(n, a, b), room.dtype), room, thread)

    def loop(
        self,
        lo: Reg | int,
        hi: Reg | int,
        step: Reg | int,
        body: Body,
        init: Sequence[Reg] = (),
    ) -> list[Reg]:
        """``for i in range(lo, hi, step)`` for step > 0.

        ``body(i, *carried)`` returns the next carried values, ``init`` are the first ones, and the
        result the last.
        """
        lo, hi, step = (self._index(v) for v in (lo, hi, step))
        if not self.target.watches:
            return self._loop(lo, hi, step, body, init)

        def watched(i: Reg, _: Reg, *carried: Reg) -> list[Reg]:
            out = body(i, *carried)
            return [i + step, *([out] if isinstance(out, Reg) else out or ())[: len(init)]]

        following, *results = self._loop(lo, hi, step, watched, [lo, *init])
        self._record_cut(following < hi)
        return results

    def _loop(self, lo: Reg, hi: Reg, step: Reg, body: Body, init: Sequence[Reg]) -> list[Reg]:
        i = self.reg(self.fresh(), INDEX)
        head = f"scf.for {i.name} = {lo.name} to {hi.name} step {step.name}"
        if not init:
            self._region(f"{head} {{", lambda: body(i), ())
            return []
        first = flat(init)
        args = [self.reg(self.fresh(), r.dtype, r.lanes) for r in first]
        name, types = self.fresh(), ", ".join(r.mlir for r in first)
        pairs = ", ".join(f"{a.name} = {r.name}" for a, r in zip(args, first, strict=True))
        opening = f"{name}:{len(first)} = {head} iter_args({pairs}) -> ({types}) {{"
        self._region(opening, lambda: body(i, *gathered(args, init)), init)
        return self._results(name, init)

    def repeat(
        self,
        test: Callable[..., Reg],
        body: Body,
        init: Sequence[Reg],
    ) -> list[Reg]:
        """``while test(*carried): carried = body(*carried)``; the last carried values."""
        args, carried = ([self.reg(self.fresh(), r.dtype, r.lanes) for r in init] for _ in "ab")
        name, types = self.fresh(), ", ".join(r.mlir for r in init)
        pairs = ", ".join(f"{a.name} = {r.name}" for a, r in zip(args, init, strict=True))
        # A loop that is watched gives what its test said last, too.
        told = [self.reg(self.fresh(), bool_)] if self.target.watches else []
        given = ", ".join([types, *(r.mlir for r in told)])
        count = len(init) + len(told)
        self.line(f"{name}:{count} = scf.while ({pairs}) : ({types}) -> ({given}) {{")
        self._depth += 1
        before = len(self._texts)
        more = test(*args)
        self.forget(before)
        names = ", ".join(r.name for r in (*args, *(more for _ in told)))
        self.line(f"scf.condition({more.name}) {names} : {given}")
        self._depth -= 1
        head = ", ".join(f"{c.name}: {c.mlir}" for c in (*carried, *told))
        self._region(f"}} do {{ ^bb0({head}):", lambda: body(*carried), init)
        if told:
            self._record_cut(self.reg(f"{name}#{len(init)}", bool_))
        return self._results(name, init)

    def record_fault(self, cond: Reg, error: Buffer, site: Reg, code: int) -> None:
        """If ``cond``, write ``code`` and ``site`` to the record ``error``, unless it holds a
        fault.

        The record is two words, code and site. Threads may record at once: each word is one aligned
        store, which does not tear, and any of their faults is a right answer. All threads of a
        launch write the same site, but of loops that are watched.
        """

        def record() -> None:
            self.store(self.cast(site, error.dtype), error, 1)
            self.store(code, error, 0)

        self.when(cond, lambda: self.when(self.compare("eq", self.load(error, 0), 0), record))

    def rounds(self, error: Buffer) -> Reg:
        """How many rounds a loop of a CPU kernel may run before it asks this again; 0: it is to
        end. The runtime's function for that is the third word of the record."""
        assert self.target.serial
        kind = f"memref.extract_aligned_pointer_as_index {error.name} : {error.mlir} -> index"
        address = self.cast(self.op(kind, INDEX, 0), i64)
        record, function = self.fresh(), self.fresh()
        self.line(f"{record} = llvm.inttoptr {address.name} : i64 to !llvm.ptr")
        word = self.load(error, 2)
        self.line(f"{function} = llvm.inttoptr {word.name} : i64 to !llvm.ptr")
        call = f"llvm.call {function}({record}) : !llvm.ptr, (!llvm.ptr) -> i64"
        return self.op(call, i64, 0)

    def _record_cut(self, cond: Reg) -> None:
        """If ``cond``, a loop was cut: record that as a fault."""
        if self._watch is None:
            self._watch = self._buffer(ERROR, self._error_type), self.size(ROUNDS_SITE)
        self.record_fault(cond, *self._watch, 1)

    def _close_watch(self) -> None:
        """Declare the record of faults after all other buffers, if only watched loops have one."""
        if self._watch is not None and all(b.name != f"%{ERROR}" for b in self._buffers):
            self.error_record()

    def when(
        self,
        cond: Reg,
        then: Callable[[], Sequence[Reg] | Reg | None],
        otherwise: Callable[[], Sequence[Reg] | Reg | None] | None = None,
        results: Sequence[Reg] = (),
    ) -> list[Reg]:
        """``if cond``; ``results`` gives the types of what both branches return."""
        if results and otherwise is None:
            raise self._refuse("an if with results needs both branches")
        like = flat(results)
        name, types = self.fresh(), ", ".join(r.mlir for r in like)
        head = f"{name}:{len(like)} = " if like else ""
        tail = f" -> ({types})" if results else ""
        self._region(f"{head}scf.if {cond.name}{tail} {{", then, results)
        if otherwise is not None:
            self._lines.pop()
            self._region("} else {", otherwise, results)
        return self._results(name, results)

    def outline(
        self,
        name: str,
        given: Sequence[Buffer | Reg],
        indices: Sequence[Reg],
        body: Callable[..., None],
        *,
        shared: bool = False,
    ) -> None:
        """Call the function ``name`` of a CPU kernel with what is ``given``, and with indices. The
        first call defines it, by ``body(*indices)``, which may use these buffers and registers, the
        literals and the dims of the launch, and no others.

        It is for what needs many constants: no loop around it keeps them in registers. One that is
        ``shared`` is compiled once for all kernels that have the same; it is given nothing but
        arguments of the kernel, whose names are the same in all.
        """
        if not self.target.serial:
            raise self._refuse("a GPU kernel is one function")
        if name not in self._functions:
            self._functions[name] = self._define(name, given, len(indices), body, shared)
        function = self._functions[name]
        self._read.update(function.words)
        values = ", ".join([*(x.name for x in (*given, *indices)), *function.words])
        self.line(f"func.call @{function.name}({values}) : ({', '.join(function.types)}) -> ()")

    def _define(
        self,
        name: str,
        given: Sequence[Buffer | Reg],
        indices: int,
        body: Callable[..., None],
        shared: bool,
    ) -> Function:
        outside = self._lines, self._head, self._constants, self._rounded, self._depth
        around = self._read, self._literals, self._spread, self._dims, self._whole
        known = self._known, self._texts, self._numbers
        numbered = self._count, self._stem
        self._lines, self._head, self._constants, self._rounded, self._depth = [], [], {}, {}, 2
        self._read, self._literals, self._spread, self._dims = set(), {}, {}, {}
        self._whole, self._known, self._texts, self._numbers = {}, {}, [], {}
        if shared:  # named alike in all kernels, and as nothing is outside
            self._count, self._stem = 0, "%s"
        args = [self.reg(self.fresh(), INDEX) for _ in range(indices)]
        body(*args)
        words = tuple(sorted(self._read))
        names = [*(a.name for a in args), *words]
        heads = [f"{x.name}: {x.mlir}" for x in given] + [f"{n}: index" for n in names]
        rest = [*self._head, *self._lines, "    return", "  }"]
        text = "\n".join([*heads, *rest])
        symbol = f"{f'rlx_{digest(text.encode(), size=8)}' if shared else self.name}_{name}"
        start = f"  func.func private @{symbol}({', '.join(heads)}) {{"
        types = tuple([x.mlir for x in given] + ["index"] * len(names))
        self._lines, self._head, self._constants, self._rounded, self._depth = outside
        self._read, self._literals, self._spread, self._dims, self._whole = around
        self._known, self._texts, self._numbers = known
        if shared:
            self._count, self._stem = numbered
        return Function(symbol, (start, *rest), types, words, shared)

    def _results(self, name: str, like: Sequence[Reg]) -> list[Reg]:
        regs = [self.reg(f"{name}#{n}", r.dtype, r.lanes) for n, r in enumerate(flat(like))]
        return gathered(regs, like)

    def _region(
        self, head: str, body: Callable[[], Sequence[Reg] | Reg | None], like: Sequence[Reg]
    ) -> None:
        """Emit a region whose body yields values of the types of ``like``."""
        self.line(head)
        self._depth += 1
        before = len(self._texts)
        out = body()
        self.forget(before)
        if like:
            regs = flat([out] if isinstance(out, Reg) else out or ())
            found, wanted = [r.mlir for r in regs], [r.mlir for r in flat(like)]
            if found != wanted:
                raise self._refuse(f"a body gave {found or 'nothing'} where {wanted} is carried")
            self.line(f"scf.yield {', '.join(r.name for r in regs)} : {', '.join(wanted)}")
        self._depth -= 1
        self.line("}")

    def vector_loop(self, n: Reg, lanes: int, body: Callable[[Reg, int], None]) -> None:
        """Cover ``[0, n)`` by vectors, the rest one by one: ``body(j, lanes)``, ``body(j, 0)``."""
        whole = n - n % lanes
        self.loop(0, whole, lanes, lambda j: body(j, lanes))
        self.loop(whole, n, 1, lambda j: body(j, 0))

    def halving_loop(self, n: Reg, lanes: int, body: Callable[[Reg, int], None]) -> None:
        """Cover ``[0, n)`` by vectors, and the rest by at most one half, one quarter, ... of one:
        ``body(j, lanes)``, ``body(j, lanes / 2)``, ..., ``body(j, 0)``."""
        if lanes > 1:
            self.loop(0, n - n % lanes, lanes, lambda j: body(j, lanes))
        else:
            self.loop(0, n, 1, lambda j: body(j, 0))
        while lanes > 1:
            rest, half = n % lanes, lanes // 2
            self.when(rest >= half, partial(body, n - rest, half if half > 1 else 0))
            lanes = half


def _held(dt: DType) -> DType:
    """The type in which a block shares values: not every device has shared bytes."""
    return i32 if dt is bool_ or (dt.is_int and dt.bits < 32) else dt
