"""What every session has: a compile cache of its own, empty before each test, and notes of the
refusals that it provokes, which are judged at its end.

With ``-n 3`` (pytest-xdist) three processes share the tests. Each notes what it provokes; the
process that started them merges the notes and judges.
"""

import gc
import itertools
import os
import signal
import tempfile
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from support import every_refusal, kept_code, raise_sites, sweeps

TOO_LATE = raise_sites.install()

# A session tries the same examples as the one before, however slow the machine is: it fails for a
# change, not by chance. `--hypothesis-profile=search` tries new ones.
settings.register_profile(
    "search", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("same", settings.get_profile("search"), derandomize=True)
settings.load_profile("same")

LONGEST = (
    "test/conformance/test_conformance.py", "test/native/test_package.py",
    "test/runtime/test_sized_devices.py", "test/lowering/test_symbolic.py", "test/test_docs.py",
    "test/ops/test_native.py", "test/conformance/test_models.py", "test/llm/test_model.py",
    "test/test_random_graphs.py", "test/targets/test_triton.py", "test/bench/test_device.py",
    "test/frontends/test_onnx_nodes.py", "test/targets/test_cpu_emulated.py",
    "test/targets/test_wasm.py", "test/training/test_examples.py", "test/tools/test_language.py",
    "test/runtime/test_claims.py", "test/distributed/test_launch.py", "test/llm/test_states.py",
    "test/test_fuzz.py", "test/ops/test_derivative_batches.py", "test/kernels/test_attention.py",
    "test/kernels/test_common.py", "test/kernels/test_block_product_rows.py",
    "test/test_layout.py", "test/targets/test_cuda.py", "test/tools/test_size_tools.py",
)  # fmt: skip
"""Files of tests of which a process takes a quarter of a minute or more."""

_folder = pytest.StashKey[tempfile.TemporaryDirectory[str]]()
_missed = pytest.StashKey[list[str]]()
_heading = pytest.StashKey[str]()
_numbers = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    """Subprocesses have it too, and nothing is read from or left in the user's."""
    config.stash[_folder] = tempfile.TemporaryDirectory(prefix="rlx-test-cache-")
    _use_new_cache(config)
    # What a shell starts in the background ignores Ctrl-C, and so do its subprocesses.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # What a target emits is the same whether or not there is a Triton, but in the tests of that and
    # on the GPUs that a run of the tests is for.
    if not {"cuda", "rocm"} & {*os.environ.get("RLX_TEST_DEVICES", "").replace(",", " ").split()}:
        os.environ.setdefault("RLX_TRITON", "off")


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_folder].cleanup()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest go first: one that is begun last would be waited for alone."""
    places = {name: n for n, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: the collector need not look at them again."""
    kept_code.install()
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    # A test that changes the compiler must not meet what another test has compiled.
    _use_new_cache(item.config)


def _use_new_cache(config: pytest.Config) -> None:
    os.environ["RLX_CACHE_DIR"] = f"{config.stash[_folder].name}/{next(_numbers)}"


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Merges the notes of a process that shared the tests."""
    # A process that died has none, and its tests failed.
    output = getattr(node, "workeroutput", {})
    unwatched, seen = output.get("refusals", ((), ()))
    TOO_LATE.extend(unwatched)
    raise_sites.seen.update((file, line) for file, line in seen)
    for place, (some, whole) in output.get("sweeps", {}).items():
        # Each process chooses what it collects, and one of them what a test chooses.
        sweeps.parts[place] = max(sweeps.parts.get(place, (0, 0)), (some, whole))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    output = getattr(config, "workeroutput", None)
    if output is not None:
        output["refusals"] = (TOO_LATE, sorted(raise_sites.seen))
        output["sweeps"] = sweeps.parts
        return
    kept_code.prune()
    if _is_whole(config) and session.testscollected:
        missed = every_refusal.missed(raise_sites.seen)
        config.stash[_missed] = [f"not watched: {module}" for module in TOO_LATE] + missed
        config.stash[_heading] = _heading_of(session)
        if config.stash[_missed] and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _heading_of(session: pytest.Session) -> str:
    """What the list of refusals is, or may be, of a session as it ended."""
    heading = "refusals that no test provokes"
    if session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return f"{heading}: not all tests ran, and those may provoke the rest"
    if session.testsfailed:
        return f"{heading}, but for what the {session.testsfailed} that failed would have"
    return heading


def _is_whole(config: pytest.Config) -> bool:
    """Whether all tests were asked for: a part of them cannot be judged."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    narrowed = any(config.getoption(o, None) for o in ("keyword", "deselect", "collectonly", "lf"))
    return whole and not narrowed


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The refusals that no test provoked, how much of the sweeps ran, and what each folder took."""
    missed = terminalreporter.config.stash.get(_missed, [])
    if missed:
        terminalreporter.section(terminalreporter.config.stash[_heading], red=True)
        for line in missed:
            terminalreporter.write_line(line)
    taken = sum(some for some, _ in sweeps.parts.values())
    every = sum(whole for _, whole in sweeps.parts.values())
    if taken < every:
        terminalreporter.section("sweeps")
        terminalreporter.write_line(f"{taken} of {every} cases ran; `make sweep` runs all")
    spent: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                path = report.nodeid.partition("::")[0]
                spent["/".join(path.split("/")[:2])] += report.duration / 60
    if sum(spent.values()) < 1:
        return
    terminalreporter.section("minutes of a process by part")
    for part, minutes in spent.most_common(25):
        terminalreporter.write_line(f"{minutes:6.1f}  {part}")
