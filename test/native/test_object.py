"""The object loader: what it links, what it refuses, and that nothing makes it crash."""

import gc
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from rlx.runtime import _native as native
from support.steps import launch, main_of

# Code, constants, zeroed and initialised data, tables of pointers, calls between functions.
RICH = """
static const float table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static int64_t zeroed[1000];
static int64_t initialised[2] = {40, 2};
static const float *const pointers[2] = {table, table + 4};
int64_t exported = 100;
__attribute__((noinline)) static int64_t helper(int64_t x) { return initialised[0] + x; }
KERNEL(rich) {
  int64_t *out = buffers[0];
  zeroed[5] += 1;
  out[0] = helper(initialised[1]);
  out[1] = (int64_t)pointers[sizes[0]][1];
  out[2] = zeroed[5];
  out[3] = exported;
}
"""


def run_rich(data: bytes) -> list[int]:
    loaded = native.Object(data)
    program = native.Program(
        objects=[loaded],
        outputs=[("out", "i64", (4,))],
        **main_of([launch(loaded.symbol("rich"), [(3, 0)], sizes=[1])]),
    )
    return [int(value) for value in program.run_slots()[0]]


@pytest.mark.parametrize("flags", [(), ("-O0",), ("-O3", "-ffunction-sections", "-g")])
def test_data_constants_and_calls_are_linked(compile_c, flags):
    assert run_rich(compile_c(RICH, *flags)) == [42, 6, 1, 100]


def test_each_load_has_its_own_data(compile_c):
    data = compile_c(RICH)
    assert run_rich(data)[2] == run_rich(data)[2] == 1


def test_symbols(kernels):
    assert "add" in kernels.symbols()
    assert kernels.symbols() == tuple(sorted(kernels.symbols()))
    with pytest.raises(native.Error, match=r"found no symbol 'nothing', expected one of .*'add'"):
        kernels.symbol("nothing")


def test_an_undefined_symbol_is_refused_by_name(compile_c):
    data = compile_c("extern float expf(float); KERNEL(k) { *(float *)buffers[0] = expf(1); }")
    with pytest.raises(native.Error, match="symbol 'expf': found no definition"):
        native.Object(data)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("_Thread_local int64_t t; KERNEL(k) { t = begin; }", "thread-local"),
        (
            "int64_t n; __attribute__((constructor)) void f(void) { n = 1; } KERNEL(k) { n = 2; }",
            "constructors",
        ),
        (
            '__attribute__((section(".odd,\\"awx\\",@progbits#"))) KERNEL(k) {}',
            "writable code",
        ),
    ],
)
def test_what_kernels_never_need_is_refused(compile_c, text, found):
    with pytest.raises(native.Error, match=found):
        native.Object(compile_c(text))


def test_absolute_code_does_not_fit(compile_c):
    data = compile_c(RICH, "-fno-pic", "-mcmodel=small")
    if native.machine() == "x86_64":
        with pytest.raises(native.Error, match="does not fit"):
            native.Object(data)


@pytest.mark.parametrize(
    ("offset", "value", "found"),
    [
        (0, 0, "no ELF magic"),
        (4, 1, "class 1"),
        (5, 2, "byte order 2"),
        (16, 2, "file type 2"),
        (18, 8, "machine number 8"),
        (58, 1, "sections of 1 bytes"),
    ],
)
def test_a_foreign_header_is_refused(kernel_bytes, offset, value, found):
    data = bytearray(kernel_bytes)
    data[offset] = value
    with pytest.raises(native.Error, match=found):
        native.Object(bytes(data))


SYMBOLS, STRINGS, RELOCATIONS = 2, 3, 4  # section types


def section_offset(data: bytes, wanted: int) -> int:
    """Where the first section of that type starts in the file."""
    start, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    for header in range(start, start + 64 * count, 64):
        if struct.unpack_from("<I", data, header + 4)[0] == wanted:
            return struct.unpack_from("<Q", data, header + 24)[0]
    raise AssertionError(f"no section of type {wanted}")


def symbol_entry(data: bytes, name: str) -> int:
    """Where the entry of a symbol starts in the file."""
    strings, at = section_offset(data, STRINGS), section_offset(data, SYMBOLS)
    while not data[strings + struct.unpack_from("<I", data, at)[0] :].startswith(
        name.encode() + b"\0"
    ):
        at += 24
    return at


def test_a_symbol_outside_its_section_is_refused(compile_c):
    data = bytearray(compile_c(RICH))
    struct.pack_into("<Q", data, symbol_entry(data, "exported") + 8, 9)
    with pytest.raises(native.Error, match="symbol 'exported': found offset 9, expected at most"):
        native.Object(bytes(data))


@pytest.mark.parametrize(
    ("field", "value", "found"),
    [
        (0, 1 << 40, "found a place outside"),
        (8, 200, "found an unknown type"),
        (12, 999, "found symbol 999"),
    ],
)
def test_a_malformed_relocation_is_refused(compile_c, field, value, found):
    data = bytearray(compile_c(RICH))
    place = section_offset(data, RELOCATIONS) + field
    struct.pack_into("<Q" if field == 0 else "<I", data, place, value)
    with pytest.raises(native.Error, match=found):
        native.Object(bytes(data))


# Runs in a process of its own, so that a crash is a failure and not the end of the tests. Only a
# refusal by the loader's own error counts; what does load must have addresses for its symbols.
FUZZ = """
import random, sys
from rlx.runtime import _native as native
data = open(sys.argv[1], "rb").read()
def attempt(mutated):
    try:
        loaded = native.Object(bytes(mutated))
        for name in loaded.symbols():
            loaded.symbol(name)
    except native.Error:
        return 1
    return 0
refused = sum(attempt(data[:length]) for length in range(len(data)))
assert refused == len(data), "a truncated object was loaded"
rng = random.Random(20)
for round in range(20000):
    mutated = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(mutated)) if rng.random() < 0.5 else rng.choice(HOT)
        mutated[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    attempt(mutated)
print("survived")
"""


def test_no_malformed_object_crashes(compile_c, tmp_path: Path):
    data = compile_c(RICH, "-Wl,--strip-debug")
    path = tmp_path / "small.o"
    path.write_bytes(data)
    # Half of the changes go where they hurt: the header and the section headers.
    start = int.from_bytes(data[40:48], "little")
    script = f"HOT = list(range(64)) + list(range({start}, {len(data)}))\n" + FUZZ
    done = subprocess.run(
        [sys.executable, "-c", script, path],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "survived\n"), done.stderr


def mappings() -> list[tuple[int, int, str]]:
    """(begin, end, access) of every mapping of this process."""
    rows = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, access = line.split()[:2]
        begin, end = (int(part, 16) for part in span.split("-"))
        rows.append((begin, end, access))
    return rows


def access_at(address: int) -> str:
    return next((a for begin, end, a in mappings() if begin <= address < end), "unmapped")


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/maps")


@linux_only
def test_no_page_is_writable_and_executable(compile_c):
    data = compile_c(RICH)
    before = set(mappings())
    loaded = native.Object(data)
    assert access_at(loaded.symbol("rich")) == "r-xp"
    assert access_at(loaded.symbol("exported")) == "rw-p"
    fresh = set(mappings()) - before
    assert not [access for _, _, access in fresh if "w" in access and "x" in access]


@linux_only
def test_pages_go_with_the_last_user(compile_c):
    loaded = native.Object(compile_c(RICH))
    address = loaded.symbol("rich")
    program = native.Program(
        objects=[loaded],
        outputs=[("out", "i64", (4,))],
        **main_of([launch(address, [(3, 0)], sizes=[0])]),
    )
    del loaded
    gc.collect()
    assert access_at(address) == "r-xp"
    assert int(program.run_slots()[0][0]) == 42
    del program
    gc.collect()
    assert access_at(address) != "r-xp"


def test_data_is_no_function(compile_c):
    loaded = native.Object(compile_c(RICH))
    with pytest.raises(native.Error, match="function address"):
        native.Program(objects=[loaded], **main_of([launch(loaded.symbol("exported"), [])]))


def test_random_bytes_are_refused():
    for seed in range(200):
        data = random.Random(seed).randbytes(seed)
        with pytest.raises(native.Error):
            native.Object(data)
    with pytest.raises(TypeError):
        native.Object("text")  # type: ignore[arg-type]
