"""``python -m bench [FAMILY ...]``: time RLX and its peers, and print tables.

    python -m bench                               all families: minutes to hours
    python -m bench --quick                       a few cases of each: some ten minutes
    python -m bench gemm --threads 1 --rounds 5
    python -m bench gemm --only 77x383 --save DIR    the graphs, for rlx bench
    python -m bench --device cuda --quick         on a GPU: families, peers and types of their own
    python -m bench report results.json           the tables of a run again
    python -m bench precision --help              products in fewer bits: speed and accuracy
    python -m bench encoder_int8 --help           text encoders in 8 bits: the same of each model
    python -m bench schemes --help                weights in packed blocks: the same of each scheme

Every library has a process of its own, which is stopped while the others run. A round asks each in
turn for the time of some calls; the tables have the least and the median over the rounds.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import report
from bench.device import BLOCK, missing
from bench.families import DEVICE_FAMILIES, FAMILIES, cases, family
from bench.machine import describe
from bench.measure import OURS, Bench, Failure, Options, Row, clock, load_average
from bench.runtimes import ON_DEVICES, RUNTIMES

QUICK_ROUNDS, ROUNDS = 3, 8
PLACES = ("--json", "--ours", "--python")
"""The options that name places on this machine."""
CPUS = {True: [1], False: [1, 2]}
"""Threads, of a quick run and of a whole one."""


def main(argv: list[str]) -> int:
    """Run what the command line says; 1 if RLX failed somewhere."""
    if argv[:1] == ["report"]:
        return report.main(argv[1:])
    if argv and argv[0] in (
        "precision",
        "schemes",
        "encoder_int8",
    ):  # which have accuracy in their tables too
        return importlib.import_module(f"bench.{argv[0]}").main(argv[1:])
    args = arguments(argv)
    options = options_of(args)
    if why := args.device and missing(args.device):
        print(f"bench: {why}", file=sys.stderr)
        return 2
    names = args.families or list(DEVICE_FAMILIES if args.device else FAMILIES)
    if why := unfit(names, options):
        print(f"bench: {why}", file=sys.stderr)
        return 2
    if absent := [name for name in options.runtimes if name not in options.installed()]:
        print(f"bench: not installed, and left out: {', '.join(absent)}", file=sys.stderr)
    if args.save:
        return save(names, options, args.save)
    machine = describe(args.device)
    command = {"arguments": repeatable(argv), "revision": machine["revision"]}
    results = report.Results(machine, {"commands": [command], "rounds": options.rounds})
    for title, found in parts(names, options):
        name = title.split(",")[0]
        results.starts.append({"family": name, "time": clock(), "load": load_average()})
        part = report.Results(results.machine, results.options)
        for row in found:
            results.add(row)
            part.add(row)
            if args.json:
                results.write(args.json)
        print(f"\n## {title}\n\n{report.section(part, name)}", flush=True)
    print(f"\n{report.summary(results)}")
    return int(any(f.runtime == OURS for f in results.failures))


def unfit(names: list[str], options: Options) -> str:
    """Why no case is left to run; empty if one is. Families with rows of their own go by what they
    measure themselves."""
    known = [case for name in names for case in cases(name).values()]
    if any(map(options.takes, known)) or not all(map(cases, names)):
        return ""
    if not any(options.names(case.name) for case in known):
        listed = ", ".join(case.name for case in known)
        return f"no case of {', '.join(names)} has {' or '.join(options.only)} in it: {listed}"
    return "--quick takes none of these cases"


Part = tuple[str, Iterator[Row | Failure]]


def parts(names: list[str], options: Options) -> Iterator[Part]:
    """Families of cases by the number of threads, for which the processes stay; then the others."""
    timed = [name for name in names if cases(name)]
    where = f"on {options.device}" if options.device else ""
    for threads in options.threads if timed else ():
        with Bench(options, threads) as bench:
            for name in timed:
                yield f"{name}, {where or f'{threads} threads'}", of_cases(name, bench)
    for name in names:
        if name not in timed:
            yield name, family(name).rows(options)


def of_cases(name: str, bench: Bench) -> Iterator[Row | Failure]:
    """The cases of a family that are asked for."""
    for case in cases(name).values():
        if bench.options.takes(case):
            print(f"{name} {case.name}", file=sys.stderr, flush=True)
            yield from bench.run(name, case)


def save(names: list[str], options: Options, folder: Path) -> int:
    """Write the graphs of cases, and print how to see where their time goes."""
    import rlx
    from bench.runtimes.rlx import graph_of

    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        for case in cases(name).values():
            if options.takes(case) and case.runs_on(OURS):
                safe = "".join(c if c.isalnum() or c in ".-+" else "_" for c in case.name)
                file = folder / f"{name}_{safe}.mlir"
                rlx.save(graph_of(case), file, values=False)
                print(f"rlx bench {file} --threads {options.threads[0]}")
    return 0


def arguments(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    form = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser("bench", description=__doc__, formatter_class=form)
    p.add_argument(
        "families", nargs="*", metavar="FAMILY",
        help=f"{', '.join(FAMILIES)}; on a device {', '.join(DEVICE_FAMILIES)}",
    )  # fmt: skip
    p.add_argument("--device", default="", metavar="NAME", help="a device of RLX, such as cuda")
    p.add_argument("--quick", action="store_true", help="fewer cases and rounds, 1 thread")
    p.add_argument("--threads", type=numbers, help="such as 1,2 (the default)")
    p.add_argument("--rounds", type=int, help=f"{ROUNDS}, or {QUICK_ROUNDS} if quick")
    p.add_argument("--seconds", type=float, help="about what a block of calls takes")
    p.add_argument(
        "--peers", type=words, metavar="NAMES",
        help="with commas between them; those that are not installed are left out",
    )  # fmt: skip
    p.add_argument(
        "--only", "--cases", type=words, default=[], metavar="TEXTS",
        help="cases whose name has one of these",
    )  # fmt: skip
    p.add_argument(
        "--cpu-clock", action="store_true",
        help="at one thread measure CPU time, on a machine that has other work too",
    )  # fmt: skip
    p.add_argument("--json", type=Path, metavar="FILE", help="where the results are written")
    p.add_argument("--save", type=Path, metavar="DIR", help="write graphs and time nothing")
    p.add_argument("--ours", metavar="PYTHON", help="the interpreter that has rlx")
    p.add_argument(
        "--python", action="append", default=[], type=pair, metavar="NAME=PYTHON",
        help="the interpreter that has a peer",
    )  # fmt: skip
    args = p.parse_args(argv)
    args.peers = usual_peers(args.device) if args.peers is None else args.peers
    known = dict.fromkeys((*RUNTIMES, *ON_DEVICES) if args.device else RUNTIMES)
    for name in args.families:
        of_device, of_cpu = name in DEVICE_FAMILIES, name in FAMILIES
        if not of_device and not of_cpu:
            listed = ", ".join(DEVICE_FAMILIES if args.device else FAMILIES)
            p.error(f"no family is called {name!r}; there are {listed}")
        if of_device != bool(args.device):
            p.error(f"{name} {'needs a --device' if of_device else 'is timed on the CPU alone'}")
    for name in args.peers:
        if name not in known:
            p.error(f"no peer is called {name!r}; there are {', '.join(known)}")
    return args


def usual_peers(device: str) -> list[str]:
    """What RLX is compared with: on the CPU all libraries, on a GPU those that run there."""
    if not device:
        return [name for name in RUNTIMES if name != OURS]
    return [name for name in ON_DEVICES if name != OURS and device in ("cuda", "rocm")]


def options_of(args: argparse.Namespace) -> Options:
    """What the command line asks for."""
    return Options(
        runtimes=[OURS, *args.peers],
        threads=args.threads or ([os.cpu_count() or 1] if args.device else CPUS[args.quick]),
        rounds=args.rounds or (QUICK_ROUNDS if args.quick else ROUNDS),
        seconds=args.seconds or (BLOCK if args.device else 0.003),
        only=args.only, quick=args.quick, cpu_clock=args.cpu_clock, device=args.device,
        pythons=dict(args.python) | ({OURS: args.ours} if args.ours else {}),
    )  # fmt: skip


def numbers(text: str) -> list[int]:
    """Integers with commas between them."""
    return [int(part) for part in text.split(",")]


def repeatable(argv: list[str]) -> list[str]:
    """A command line without the places that it names on this machine."""
    kept, rest = [], iter(argv)
    for word in rest:
        if word in PLACES:
            next(rest, None)
        elif word.split("=")[0] not in PLACES:
            kept.append(word)
    return kept


def pair(text: str) -> tuple[str, str]:
    """A name and what it stands for."""
    name, _, value = text.partition("=")
    return name, value


def words(text: str) -> list[str]:
    """Texts with commas between them."""
    return [part for part in text.split(",") if part]


if __name__ == "__main__":
    # Ended from outside it ends its processes too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
