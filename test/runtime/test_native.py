"""The surface of the native module: its stub, the machine, the number of threads."""

import ast
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from rlx.runtime import _native as native

STUB = Path(__file__).resolve().parents[2] / "rlx" / "runtime" / "_native.pyi"


def declared(body: list[ast.stmt]) -> set[str]:
    """The names that a stub defines, without types made for annotations only."""
    names = set()
    for item in body:
        if isinstance(item, ast.FunctionDef | ast.ClassDef):
            names.add(item.name)
        elif isinstance(item, ast.AnnAssign) and ast.unparse(item.annotation) != "TypeAlias":
            names.add(ast.unparse(item.target))
    return names


def public(value: object) -> set[str]:
    return {name for name in dir(value) if not name.startswith("_")}


def test_the_stub_tells_what_there_is():
    tree = ast.parse(STUB.read_text())
    assert declared(tree.body) == public(native)
    for item in tree.body:
        if isinstance(item, ast.ClassDef) and item.name in ("Object", "Program", "Weights"):
            assert declared(item.body) - {"__init__"} == public(getattr(native, item.name))


def test_the_machine_and_its_features():
    assert native.machine() == platform.machine()
    features = native.cpu_features()
    assert isinstance(features, frozenset)
    assert ("sse2" if native.machine() == "x86_64" else "neon") in features


@pytest.mark.skipif(not os.path.exists("/proc/cpuinfo"), reason="compares with Linux")
def test_features_agree_with_the_system():
    if native.machine() != "x86_64":
        pytest.skip("Linux spells the features of other machines differently")
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = set(next(line for line in lines if line.startswith("flags")).split(":")[1].split())
    spelt = {
        "lzcnt": "abm",
        "bmi": "bmi1",
        "avx512bf16": "avx512_bf16",
        "avx512vnni": "avx512_vnni",
    }
    spelt |= {"amx-tile": "amx_tile", "amx-bf16": "amx_bf16", "sse4.2": "sse4_2"}
    for name in ("avx", "avx2", "fma", "f16c", "bmi2", "popcnt", "movbe", "avx512f", *spelt):
        assert (name in native.cpu_features()) == (spelt.get(name, name) in flags), name


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a fresh process, whose count of threads is not set yet."""
    return subprocess.run(
        [sys.executable, "-c", "from rlx.runtime import _native as native\n" + code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_the_environment_sets_the_number_of_threads():
    done = python("print(native.num_threads(), native.default_threads())", RLX_NUM_THREADS="3")
    assert done.stdout == "3 3\n"


def test_set_threads_wins_over_the_environment():
    code = "native.set_threads(5); print(native.num_threads(), native.default_threads())"
    assert python(code, RLX_NUM_THREADS="3").stdout == "5 3\n"


@pytest.mark.parametrize("value", ["0", "-2", "many", "1.5", ""])
def test_a_bad_environment_is_an_error_that_names_it(value: str):
    done = python("native.num_threads()", RLX_NUM_THREADS=value)
    assert done.returncode == 1
    assert (
        f"environment variable RLX_NUM_THREADS: found '{value}', expected an integer" in done.stderr
    )


def test_the_default_respects_the_affinity():
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("the system has no CPU affinity")
    code = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.environ.pop("RLX_NUM_THREADS", None)
print(native.default_threads())
"""
    assert python(code).stdout == "1\n"


def test_the_process_ends_while_calls_are_under_way():
    code = """
import threading, time
from rlx.schedule.codec import main_words
from rlx.schedule.steps import For
program = native.Program(objects=[], main=main_words([For(1000, (), None, False)]))
def keep_calling():
    while True:
        program.run_slots()
for _ in range(4):
    threading.Thread(target=keep_calling, daemon=True).start()
time.sleep(0.1)
"""
    for _ in range(3):
        done = python(code)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("count", [0, -1, 5000])
def test_a_bad_number_of_threads_is_refused(count: int):
    with pytest.raises(native.Error) as caught:
        native.set_threads(count)
    assert caught.value.where == "set_threads"
    assert caught.value.found == str(count)
