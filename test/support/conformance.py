"""The samples of all ops on the GPU targets, against the interpreter: which cases, and what became
of each.

    python -m support.conformance vulkan --cases covering --out found.json

A device's compiler takes a tenth of a second to start and some hundredths for a kernel, so that
many cases make one program. There are three sets of cases. The *turning* one, which every run of
the tests takes, has on every target what needs each kernel family and each type of storage; all
other ops come up on one of those that run here, with every kind of element type and every word of
their attributes, and beside ops of their file with every type; those that families of kernels run
with every sample. The *covering* one has all the types on every target, and is what
``docs/gpu_support.md`` tells of; the *full* one has every sample with every type.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.compiler.driver import compile_program
from rlx.errors import RlxError, UnsupportedError
from rlx.ir.interpreter import interpret
from rlx.ir.op import Op
from rlx.runtime import backend
from rlx.runtime.backend import registered
from rlx.targets import TARGETS, find_target
from rlx.targets.gpu.drivers import DRIVERS, probe
from rlx.types import DType
from support import emulated, node, web
from support.device import device_of
from support.drivers import STAND_INS, why_no_stand_in
from support.emulated import EMULATED
from support.judges import JUDGES
from support.metal import COMPILER
from support.op_graphs import OpGraph
from support.samples import Case, cases, kind_of
from support.support_record import HERE
from support.sweeps import covering
from support.tolerances import assert_close, tolerance_of

__all__ = [
    "ELSEWHERE", "EXPECTED", "FAMILIES", "JUDGED", "SEEDS", "SETS", "SLOW", "STANDS", "Facts",
    "Finding", "chosen_cases", "columns", "conforms", "facts", "gpu_targets", "lacking",
    "loses_products_with_zero", "need", "need_one_run", "runnable", "sampled", "turning",
    "words_of",
]  # fmt: skip

EXPECTED, JUDGED = (
    os.environ.get(name, "").replace(",", " ").split()
    for name in ("RLX_TEST_DEVICES", "RLX_TEST_JUDGES")
)
"""The targets whose devices, or stand-ins for them, must be there; and those of which what judges
their code must be."""

BATCH = 100
"""Cases of a program: its file is read anew for each of its kernels."""

SLOW: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("vulkan", "gpu", "opengl", "directx"),
    (
        "hir.attention_block", "hir.bert_layer", "hir.llama_decoder_block", "hir.qwen35_mtp_head",
        "mir.eigh", "mir.lstsq", "mir.pinv", "mir.qr", "mir.svd",
    ),
)  # fmt: skip
"""Ops whose kernels take llvmpipe's compiler seconds to minutes, two thirds of all its time: of the
turning set they are compiled by RLX only there, and run where the target runs on hardware. The
others of the turning set run them, whole models (``test_models``) have what the blocks expand to,
and ``eigvalsh``, ``svdvals`` and ``lu`` the same loops."""

FAMILIES = (
    "mir.add", "mir.argmax", "mir.attention", "mir.concat", "mir.cumsum", "mir.dequant_matmul",
    "mir.dynamic_slice", "mir.fft", "mir.gather", "mir.lt", "mir.matmul", "mir.paged_attention",
    "mir.reduce_max", "mir.softmax",
)  # fmt: skip
"""Ops that together need every kernel family and every type of storage: each target's turning set
has their first samples."""

STANDS = {web.NAME: FAMILIES}
"""Of a target whose driver takes long, the ops that run in the turning set, on all types together.
The driver's compiler alone is asked about the others."""

EVERYWHERE = ("mir.gather", "mir.softmax", "mir.where")
"""Ops that need every form of kernel: each target's turning set has their types and samples."""

WASM = "wasm"

ELSEWHERE = (*EMULATED, WASM)
"""The targets of kernels of processors that are not this one: emulated, or an engine in node."""

SEEDS = ((0, False), (1, True))
"""Runs of a program: seeds, and whether some floats are nan, infinite or zero."""


@dataclass(frozen=True)
class Facts:
    """Where the code of a target runs here: on ``hardware``, ``emulated``, in an ``engine`` of
    WebAssembly, on a ``software`` driver, as C++ by way of a ``shim``, or nowhere, so that it is
    ``assembled`` only. ``why`` says what is missing."""

    target: str
    evidence: str
    device: str = ""
    why: str = ""

    @property
    def runs(self) -> bool:
        """Whether there is a device."""
        return self.evidence != "assembled"


@dataclass(frozen=True)
class Finding:
    """What became of a case: it ``agrees``, is ``refused`` by an error that says why, is only
    ``assembled``, or is ``wrong``, or ``fails`` with an error that is no refusal."""

    op: str
    dtype: str
    sample: int
    verdict: str
    text: str = ""

    @staticmethod
    def of(case: Case, verdict: str, text: str = "") -> Finding:
        """The finding of a case."""
        dtype = "" if case.dtype is None else case.dtype.name
        return Finding(case.op.name, dtype, case.number, verdict, text)

    @property
    def case(self) -> tuple[str, str, int]:
        """Its op, element type and sample."""
        return self.op, self.dtype, self.sample

    @property
    def good(self) -> bool:
        """Whether it is what may be."""
        return self.verdict in ("agrees", "refused", "assembled")

    def __str__(self) -> str:
        return f"{self.op}-{self.dtype}-{self.sample} {self.verdict}: {self.text}"


def _multiplies_by_zero(case: Case) -> bool:
    """Whether a kernel of a case multiplies by a literal 0: the first state, a weight, or the
    imaginary part of a quotient."""
    if case.op.name == "mir.reduce_mean":
        return case.dtype is not None and case.dtype.is_complex
    return case.op.name in ("mir.linear_recurrence", "hir.resize")


@cache
def loses_products_with_zero(target: str) -> bool:
    """Whether a device takes -inf * 0 for 0, where the 0 is a literal of the kernel. SPIR-V forbids
    it to a product that is marked NoContraction in a module that asks for
    SignedZeroInfNanPreserve, as RLX's are. Mesa's llvmpipe does it all the same in version 22.3,
    whose lp_build_mul gives zero wherever a factor is the constant zero; later ones ask whether nan
    is to be kept."""
    g = rlx.Graph("product")
    g.set_outputs(g.input("x", [1]).leaky_relu(0.0))
    (found,) = rlx.Session(device_of(target)).compile(g).run({"x": np.array([-np.inf], "f4")})
    return not np.isnan(found[0])


def gpu_targets() -> tuple[str, ...]:
    """The targets that run kernels on a GPU."""
    return tuple(t for t in TARGETS if find_target(t).kernels.binds)


def columns() -> tuple[str, ...]:
    """The targets that the record tells of: GPUs', and those of ``ELSEWHERE``."""
    return (*gpu_targets(), *ELSEWHERE)


def facts(target: str) -> Facts:
    """What there is to run a target's code here."""
    if target in EMULATED:
        why = emulated.why_not(target)
        name = "" if why else emulated.device_name(target)
        return Facts(target, "assembled" if why else "emulated", name, why)
    if target == WASM:
        why = node.why_not()
        return Facts(target, "assembled" if why else "engine", "" if why else node.version(), why)
    if target == web.NAME:
        why = web.why_not()
        name = "" if why else web.device_name()
        return Facts(target, "assembled" if why else "software", name, why)
    if target in STAND_INS:
        why = why_no_stand_in(target)
        return Facts(target, "assembled", why=why) if why else _stood_in(target)
    if not registered(target):
        return Facts(target, "assembled", why="there is no backend that runs its code")
    found = probe(target) if target in DRIVERS else None
    if found is not None and not found.found:
        return Facts(target, "assembled", why=found.why)
    why = backend.why_not(target)
    if why:
        return Facts(target, "assembled", why=why)
    software = found is not None and found.software
    return Facts(target, "software" if software else "hardware", rlx.full_name(target))


def _stood_in(target: str) -> Facts:
    if target == "metal":
        return Facts(target, "shim", f"MSL as C++ ({COMPILER[0]})")
    return Facts(target, "software", f"{rlx.full_name('vulkan')}, of SPIR-V by glslang")


def _why_left_out(target: str) -> str:
    here = facts(target)
    if here.runs and target in STAND_INS and target not in EXPECTED:
        return "what stands for its device is used where RLX_TEST_DEVICES names it"
    return here.why


def need(target: str) -> None:
    """Skip the test of a target on which the tests run no case; where ``RLX_TEST_DEVICES`` names it
    that is a failure."""
    if why := _why_left_out(target):
        assert target not in EXPECTED, f"RLX_TEST_DEVICES names {target}, but {why}"
        pytest.skip(f"{target}: {why} (or run `make drivers`)")


def need_one_run(target: str, found: Sequence[Finding]) -> None:
    """Skip the test of a target if its device took none of the cases, and say why; where
    ``RLX_TEST_DEVICES`` names it that is a failure."""
    if any(f.verdict == "agrees" for f in found):
        return
    said = Counter(f"{f.verdict}: {f.text}" for f in found).most_common(1)
    why = f"no case ran on {target}; of {len(found)} the most are {said[0][0] if said else 'none'}"
    assert target not in EXPECTED, why
    pytest.skip(why)


@cache
def runnable() -> tuple[str, ...]:
    """The targets on which the tests run cases."""
    return tuple(t for t in gpu_targets() if not _why_left_out(t))


def turning(target: str, devices: Sequence[str]) -> list[Case]:
    """The turning set of a target, beside ``devices`` that take turns with it."""
    if target in ELSEWHERE:
        return [c for c in _shared_elsewhere() if _taker(c, ELSEWHERE) == target]
    turns = [t for t in devices if t not in STANDS]
    found = {str(c): c for c in _everywhere()}
    firsts = {c.op.name: c for c in reversed(list(cases()))}
    found |= {str(c): c for c in map(firsts.__getitem__, FAMILIES)}
    if target in STANDS:
        stands = [c for c in _covering(target) if c.op.name in STANDS[target]]
        found |= {str(c): c for c in covering(stands, lambda c: [c.op, c.dtype])}
    for case in _shared():
        takers = [t for t in turns if case.op.name not in SLOW.get(t, ())] or turns
        takers = [t for t in takers if not lacking(t, case)] or takers
        if (_taker(case, takers) if target in turns else _taker(case, gpu_targets())) == target:
            found.setdefault(str(case), case)
    return list(found.values())


def _turning(target: str) -> list[Case]:
    return turning(target, runnable())


def _taker(case: Case, targets: Sequence[str]) -> str:
    """Which of some targets has the turn of a case."""
    return targets[zlib.crc32(str(case).encode()) % len(targets)]


@cache
def _everywhere() -> list[Case]:
    """What every target has of ``EVERYWHERE``."""
    ours = [c for c in cases() if c.op.name in EVERYWHERE]
    return covering(ours, lambda c: [(c.op, c.number), (c.op, c.dtype)])


@cache
def _family_files() -> set[str]:
    return {c.op.__module__ for c in cases() if c.op.name in FAMILIES}


def sampled(op: type[Op]) -> bool:
    """Whether the turning sets have every sample of an op: those of a file with one of
    ``FAMILIES``, whose sizes choose the kernel. Of a pointwise op they choose none."""
    return op.__module__ in _family_files() and not op.pointwise


def words_of(c: Case) -> list[tuple[str, str]]:
    """Attributes that are words, such as the type of a cast, a scheme or a mode: each is code of
    its own in a device's language."""
    return [(name, word) for name, word in c.sample.attrs.items() if isinstance(word, str)]


@cache
def _shared() -> list[Case]:
    """What the targets that run here share. Other samples differ in what passes and common loops
    make of them, and ``test_native`` has them all on this processor."""

    def facts(c: Case) -> Iterator[Hashable]:
        yield from ((c.op, kind_of(c)), (c.op.__module__, c.dtype))
        yield from ((c.op, word) for word in words_of(c))
        if sampled(c.op):
            yield c.op, c.number

    return covering(cases(), facts)


@cache
def _shared_elsewhere() -> list[Case]:
    """What ``ELSEWHERE`` shares: what kernels compute is tested on this processor, and there that
    other instructions do the same."""
    return covering(cases(), lambda c: [c.op, (c.op.__module__, c.dtype)])


def _covering(target: str) -> list[Case]:
    takes = [c for c in cases() if not lacking(target, c)]
    taken = {(c.op.name, c.dtype) for c in takes}
    none = [c for c in cases() if (c.op.name, c.dtype) not in taken]
    return chosen_cases(lambda op: (columns().index(target), 1), [*takes, *none])


def _full(target: str) -> list[Case]:
    return list(cases())


def chosen_cases(turn_of: Callable[[str], tuple[int, int]], every: Sequence[Case]) -> list[Case]:
    """Of ``every`` case the first one of each op, of the first ones of the others of its types
    those whose turn it is, and of every sample the one whose turn it is. ``turn_of`` gives the turn
    of an op, and how many there are. What is chosen of an op does not depend on the other ops."""
    samples: dict[tuple[str, int], list[Case]] = {}
    for case in every:
        samples.setdefault((case.op.name, case.number), []).append(case)
    found: list[Case] = []
    types: dict[str, set[str]] = {}
    for (op, number), group in samples.items():
        n = zlib.crc32(op.encode()) + number
        turn, turns = turn_of(op)
        for m, case in enumerate(group):
            seen = types.setdefault(op, set())
            due = turns > 0 and (n + m) % turns == turn % turns
            new = str(case.dtype) not in seen and (not seen or due)
            seen.add(str(case.dtype))
            one = turns > 0 and (n + turn) % len(group) == m and n % turns == turn % turns
            if new or one:
                found.append(case)
    return found


SETS: dict[str, Callable[[str], list[Case]]] = {
    "turning": _turning, "covering": _covering, "full": _full,
}  # fmt: skip
"""The sets of cases by name."""


def lacking(target: str, case: Case) -> str:
    """Why a target refuses a case for an element type of its operands or results; empty if it does
    not."""
    return _lacking(target)[str(case)]


@cache
def _lacking(target: str) -> dict[str, str]:
    lacks = find_target(target).kernels.lacks
    found: dict[str, str] = {}
    for case in cases():
        missing = [part for part in _element_types()[str(case)] if part in lacks]
        found[str(case)] = f"{missing[0]}: {lacks[missing[0]]}" if missing else ""
    return found


@cache
def _element_types() -> dict[str, list[DType]]:
    """By case those of its operands and results; of complex numbers those of their parts."""
    nodes = {str(case): case.node() for case in cases()}
    return {
        name: [v.dtype.part for v in (*node.present, *node.results)] for name, node in nodes.items()
    }


def conforms(target: str, chosen: Sequence[Case], *, wholly: bool = True) -> Iterator[Finding]:
    """Run cases on the device of a target, or compile them for it where it has none. If not
    ``wholly``, slow ones are compiled only, those of the ops that stand for the others run where
    there are such, and every case is judged for one of the target's names."""
    here = facts(target)
    slow = SLOW.get(target, ()) if here.evidence == "software" and not wholly else ()
    judge = JUDGES.get(target)
    names = judge.names if judge and not judge.missing() else (HERE.get(target, target),)
    fit: dict[bool, list[Case]] = {True: [], False: []}
    for case in chosen:
        if why := lacking(target, case):
            yield Finding.of(case, "refused", why)
        else:
            stands = wholly or case.op.name in STANDS.get(target, (case.op.name,))
            takes = target not in EMULATED or not here.runs or emulated.runs(target, case)
            fit[here.runs and stands and takes and case.op.name not in slow].append(case)
    for runs, found in fit.items():
        size = min(BATCH, judge.batch if judge else BATCH)
        if not wholly:  # each name has a batch at least
            size = min(size, -(-len(found) // len(names)) or 1)
        for n, start in enumerate(range(0, len(found), size)):
            asked = names if wholly else (names[n % len(names)],)
            if not wholly and runs and target == "vulkan":
                asked = ()  # what its judge says of samples, `test_vulkan` has
            yield from _tried(target, found[start : start + size], runs, asked)


def _tried(
    target: str, batch: Sequence[Case], runs: bool, names: Sequence[str]
) -> Iterator[Finding]:
    """A batch as one program; where that cannot be, in halves, down to single cases."""
    try:
        if not runs or target in ("vulkan", web.NAME):  # whose driver has another compiler
            _judged(target, batch, names)
        ran = _run(target, batch) if runs else (Finding.of(c, "assembled") for c in batch)
        found = list(ran)
    except RlxError as e:
        if len(batch) == 1:
            verdict = "refused" if isinstance(e, UnsupportedError) else "fails"
            yield Finding.of(batch[0], verdict, e.message)
            return
        half = len(batch) // 2
        yield from _tried(target, batch[:half], runs, names)
        yield from _tried(target, batch[half:], runs, names)
    else:
        yield from found


def _judged(target: str, batch: Sequence[Case], names: Sequence[str]) -> None:
    """Compile a batch for names of a target, and ask its judge what it says of that."""
    graph, judge = OpGraph.of_cases("cases", batch).graph, JUDGES.get(target)
    if target in ELSEWHERE:
        rlx.compile_artifact(graph, target)
        return
    for name in names:
        found = find_target(name)
        program, _ = compile_program(graph, found)
        if judge and not judge.missing():
            judge(found, program.kernels)


def _run(target: str, batch: Sequence[Case]) -> Iterator[Finding]:
    made = OpGraph.of_cases("cases", batch)
    run = _runner_of(target, made.graph)
    wrong: dict[str, str] = {}
    for seed, special in SEEDS:
        feeds = made.feeds(seed, special=special)
        expected = interpret(made.graph, feeds)
        loses = special and target not in ELSEWHERE and loses_products_with_zero(target)
        for case, a, b in zip(made.owners, run(feeds), expected, strict=True):
            if loses and _multiplies_by_zero(case):
                continue
            try:
                assert_close(a, b, tolerance_of(case.op.name, b))
            except AssertionError as e:
                wrong.setdefault(str(case), f"seed {seed}, special={special}: {_one_line(e)}")
    for case in batch:
        yield Finding.of(
            case, "wrong" if str(case) in wrong else "agrees", wrong.get(str(case), "")
        )


def _runner_of(target: str, graph: rlx.Graph) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
    """What computes a graph's outputs for inputs on a target."""
    if target in EMULATED:
        artifact = rlx.compile_artifact(graph, target)
        return lambda feeds: emulated.run(artifact, target, feeds)
    if target == WASM:
        return node.WasmProgram(graph).run
    return rlx.Session(device_of(target)).compile(graph).run


def _one_line(e: AssertionError) -> str:
    return " ".join(str(e).split())[:400]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one target and write its findings."""
    p = argparse.ArgumentParser("conformance", description=__doc__)
    p.add_argument("target", choices=columns())
    p.add_argument("--cases", choices=SETS, default="turning", help="which of the three sets")
    p.add_argument("--beside", nargs="*", help="what takes turns, in place of all that runs here")
    p.add_argument("--op", action="append", help="only the ops whose name contains this")
    p.add_argument("--out", type=Path, help="where the findings go, as JSON")
    args = p.parse_args(argv)
    if args.cases == "turning" and args.beside is not None:
        chosen = turning(args.target, args.beside)
    else:
        chosen = SETS[args.cases](args.target)
    if args.op:
        chosen = [c for c in chosen if any(o in c.op.name for o in args.op)]
    start = time.perf_counter()
    found = list(conforms(args.target, chosen, wholly=args.cases != "turning"))
    seconds = time.perf_counter() - start
    for f in found:
        if not f.good:
            print(f, file=sys.stderr)
    counts = {
        v: sum(f.verdict == v for f in found) for v in dict.fromkeys(f.verdict for f in found)
    }
    print(f"{facts(args.target)}: {counts} in {seconds:.0f} s")
    if args.out:
        data: dict[str, Any] = {
            "facts": asdict(facts(args.target)), "seconds": seconds,
            "findings": [asdict(f) for f in found],
        }  # fmt: skip
        args.out.write_text(json.dumps(data), encoding="utf-8")
    return int(not all(f.good for f in found))


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.exit(main())
