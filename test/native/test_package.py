"""The installed CMake package: the examples build with it, and give the bits that Python gives."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.models.bert import BertConfig, bert_encoder
from rlx.models.safetensors import SafeTensors
from rlx.tools.cli import main
from support.cpp import ROOT, cmake_build, run, tool
from support.minilm import minilm_dir
from support.tiny_llm import write_talker

Array = np.ndarray[Any, Any]

X = np.linspace(-2, 2, 5 * 16, dtype=np.float32).reshape(5, 16)
W = np.linspace(-1, 1, 16 * 48, dtype=np.float32).reshape(16, 48)


@pytest.fixture(scope="module")
def prefix(native_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package is installed: nothing of the checkout is on a path."""
    prefix = tmp_path_factory.mktemp("prefix")
    run(tool("cmake"), "--install", native_build, "--prefix", prefix)
    return prefix


@pytest.fixture(scope="module")
def examples(prefix: Path) -> Path:
    """The directory of the built examples."""
    return cmake_build(
        ROOT / "examples" / "cpp", "examples-test", f"-Drlx_DIR={prefix}/lib/cmake/rlx"
    )


def small(tmp_path: Path) -> tuple[Path, rlx.Artifact]:
    g = rlx.Graph("small")
    x, i = g.input("x", [5, 16]), g.input("i", [2], "i64")
    h = (x @ g.param("w", [16, 48], value=W)).gelu()
    g.set_outputs([h.softmax(axis=-1), g.gather(h, i, axis=0).cast("bf16")])
    made = rlx.compile_artifact(g)
    made.save(tmp_path / "small.rlx")
    return tmp_path / "small.rlx", made


def run_model(
    examples: Path, model: Path, inputs: Sequence[Array], outputs: int, sized: bool = False
) -> list[bytes]:
    """The bytes of the outputs that the C program computes; of a model that is ``sized`` it is told
    the shapes of the inputs."""
    files = [model.with_name(f"{model.stem}.{k}") for k in range(len(inputs) + outputs)]
    for path, value in zip(files, inputs, strict=False):
        path.write_bytes(value.tobytes())
    shapes = [f"{p}:{'x'.join(map(str, a.shape))}" for p, a in zip(files, inputs, strict=False)]
    given = shapes if sized else files[: len(inputs)]
    run(examples / "run_model", model, *given, *files[len(inputs) :])
    return [path.read_bytes() for path in files[len(inputs) :]]


def test_a_program_of_c_gives_the_bits_of_python(examples: Path, tmp_path: Path) -> None:
    path, made = small(tmp_path)
    indices = np.array([4, 0])
    expected = rlx.Session("cpu").load(made).run({"x": X, "i": indices})
    found = run_model(examples, path, [X, indices], 2)
    assert found == [a.tobytes() for a in expected]


def test_a_program_of_c_runs_one_file_at_all_sizes(examples: Path, tmp_path: Path) -> None:
    g = rlx.Graph("sized")
    x, i = g.input("x", ["rows", 16]), g.input("i", ["few"], "i64")
    h = (x @ g.param("w", [16, 48], value=W)).gelu()
    g.set_outputs([h.softmax(axis=-1), g.gather(h, i, axis=0), g.concat([x, x], axis=0)])
    made, path = rlx.compile_artifact(g, dims={"rows": (1, 300)}), tmp_path / "sized.rlx"
    made.save(path)
    f = rlx.Session("cpu").load(path)
    for rows, few in ((1, 1), (3, 2), (8, 0), (29, 5), (256, 256), (299, 1)):
        values = np.resize(X, (rows, 16)), np.arange(few) % rows
        expected = rlx.Session("cpu").compile(g, dims={"rows": rows, "few": few}).run_slots(*values)
        assert [a.tobytes() for a in f(*values)] == [a.tobytes() for a in expected]
        assert run_model(examples, path, values, 3, True) == [a.tobytes() for a in expected]
    with pytest.raises(
        AssertionError, match="dim 'rows': found 301, expected a size from 1 to 300"
    ):
        run_model(examples, path, [np.resize(X, (301, 16)), np.zeros(2, np.int64)], 3, True)
    with pytest.raises(AssertionError, match=r"test_package.py:\d+: gather: index out of range"):
        run_model(examples, path, [X, np.array([4, 9])], 3, True)


def test_a_program_of_c_prints_the_tokens_of_a_language_model(
    examples: Path, tmp_path: Path
) -> None:
    folder, made, prompt = write_talker(tmp_path), tmp_path / "talker.rlx", [*range(40, 51)]
    words = ["compile", str(folder), "-o", str(made), "--context", "32", "--dim", "rows=1..4"]
    assert main(words) == 0
    told = run(examples / "tell_tokens", made, "8", *map(str, prompt))
    ids = rlx.LLM(folder, context=32).generate(prompt, max_new_tokens=8, ignore_eos=True)[0].ids
    assert [int(line) for line in told.split()] == [*ids]


def test_a_program_of_c_is_told_what_is_wrong(examples: Path, tmp_path: Path) -> None:
    path, _ = small(tmp_path)
    with pytest.raises(AssertionError, match=r"test_package.py:\d+: gather: index out of range"):
        run_model(examples, path, [X, np.array([4, 9])], 2)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(AssertionError, match=r"small\.rlx': file: .*cut short"):
        run_model(examples, path, [X, np.array([4, 0])], 2)


@pytest.mark.parametrize("way", ["cmake", "gcc"])
def test_the_lines_of_the_documentation_build_a_program_of_c(
    way: str, prefix: Path, tmp_path: Path
) -> None:
    text = (ROOT / "docs" / "artifact.md").read_text("utf-8")
    (tmp_path / "program.c").write_text(text.split("```c\n")[1].split("```")[0])
    if way == "cmake":
        (tmp_path / "CMakeLists.txt").write_text(text.split("```cmake\n")[1].split("```")[0])
        cmake, built = tool("cmake"), tmp_path / "build"
        run(cmake, "-S", tmp_path, "-B", built, f"-DCMAKE_PREFIX_PATH={prefix}")
        run(cmake, "--build", built)
    else:
        built = tmp_path
        (line,) = [line for line in text.splitlines() if line.startswith("gcc ")]
        words = [w.replace("PREFIX", str(prefix)) for w in line.split()]
        places = {"program.c": tmp_path / "program.c", "program": built / "program"}
        run(*(places.get(w, w) for w in words))
    g = rlx.Graph("twice")
    g.set_outputs({"y": g.input("x", [4]) * 2.0})
    rlx.compile_artifact(g).save(tmp_path / "twice.rlx")
    assert run(built / "program", tmp_path / "twice.rlx") == "y: 2 4 6 8\n"


def test_the_libraries_need_no_python_and_export_the_interface_alone(prefix: Path) -> None:
    shared = prefix / "lib" / "librlx.so"
    needed = run("readelf", "--dynamic", "--wide", shared)
    assert "python" not in needed.lower()
    header = (prefix / "include" / "rlx.h").read_text(encoding="utf-8")
    lines = run("nm", "--dynamic", "--defined-only", shared).splitlines()
    exported = {line.split()[-1] for line in lines}
    assert len(exported) > 10
    assert {n for n in exported if f"{n}(" in header} == exported


def test_the_header_is_c_and_the_shared_library_links(prefix: Path, tmp_path: Path) -> None:
    source = tmp_path / "main.c"
    source.write_text(
        "#include <rlx.h>\n"
        'int main(void) { rlx_model *m = 0; return rlx_load("none", &m) == RLX_REFUSED ? 0 : 1; }\n'
    )
    program = tmp_path / "main"
    strict = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")
    lib = prefix / "lib"
    run("cc", *strict, f"-I{prefix}/include", source, "-o", program, f"-L{lib}", "-lrlx",
        f"-Wl,-rpath,{lib}")  # fmt: skip
    run(program)


def test_minilm_runs_without_python(examples: Path, tmp_path: Path) -> None:
    model, path = minilm_dir(), tmp_path / "minilm.rlx"
    if model is None:
        pytest.skip("the model is not installed; make demo installs it")
    graph = bert_encoder(BertConfig.from_dir(model))
    weights = SafeTensors(model / "model.safetensors")
    params = {str(v.name): weights[str(v.name)] for v in graph.params}
    rlx.compile_artifact(graph, dims={"batch": 1, "tokens": (1, 64)}, params=params).save(path)
    f = rlx.Session("cpu").compile(graph)
    for name, value in params.items():
        f.set_param(name, value)
    texts, vectors = ([101, 7592, 2088, 102], [101, 7632, 2045, 2023, 102]), []
    for text in texts:
        ids = np.array([text])
        mask = np.ones_like(ids)
        vectors.append(f.run({"ids": ids, "mask": mask})[0])
        assert run_model(examples, path, [ids, mask], 1, True) == [vectors[-1].tobytes()]
    printed = run(examples / "embed", path, *(" ".join(map(str, text)) for text in texts))
    assert printed == f"{float(vectors[0][0].astype(float) @ vectors[1][0].astype(float)):.4f}\n"
    done = subprocess.run(
        [examples / "embed", path, "101", "999999"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "gather: index out of range" in done.stderr


CPP = r"""
#include <rlx.hpp>

#include <array>
#include <cstdio>

int main(int, char **argv) {
  const rlx::Model model(argv[1]);
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};
  const std::array<std::int64_t, 2> i = {1, 0};
  rlx::Model two = model.bind({{2, 3}, {2}});
  for (const rlx::Tensor& t : two.outputs())
    std::printf("%s %s %d\n", t.name.c_str(), rlx::name_of(t.dtype), int(t.shape.at(1)));
  two.set_param("w", std::vector<float>{1, 10, 100});
  std::vector<float> y(6);
  two.run({x, i}, {y});
  for (float v : y) std::printf("%g ", v);
  rlx::Model moved = std::move(two);
  std::printf("\n%g\n", moved.run<float>({x, i})[5]);
  const auto refused = [](auto&& call) {
    try {
      call();
    } catch (const rlx::Fault& e) {
      std::printf("fault: %s\n", e.what());
    } catch (const rlx::Refused& e) {
      std::printf("%s\n", e.what());
    }
  };
  refused([] { rlx::Model("none.rlx"); });
  refused([&] { moved.run<float>({x}); });
  refused([&] { moved.run<float>({x, x}); });
  refused([&] { moved.run<double>({x, i}); });
  refused([&] { model.bind({{2, 3}}); });
  refused([&] { model.bind({{2, 3}, {2, 2}}); });
  refused([&] { rlx::Model::from_memory("no", 2); });
  refused([&] { moved.set_param("w", i); });
  refused([&] { moved.run<float>({x, std::array<std::int64_t, 2>{9, 9}}); });
}
"""


def test_the_header_of_cpp(prefix: Path, tmp_path: Path) -> None:
    g = rlx.Graph("rows")
    x, i = g.input("x", ["rows", 3]), g.input("i", ["few"], "i64")
    g.set_outputs({"y": g.gather(x * g.param("w", [3]), i, axis=0)})
    rlx.compile_artifact(g).save(tmp_path / "rows.rlx")
    (tmp_path / "main.cpp").write_text(CPP)
    strict = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic")
    lib = prefix / "lib"
    run("c++", *strict, f"-I{prefix}/include", tmp_path / "main.cpp", "-o", tmp_path / "main",
        f"-L{lib}", "-lrlx", f"-Wl,-rpath,{lib}")  # fmt: skip
    said = run(tmp_path / "main", tmp_path / "rows.rlx").splitlines()
    assert said[:3] == ["y f32 3", "4 50 600 1 20 300 ", "300"]
    for line, expected in zip(said[3:], (
        "none.rlx",
        "inputs: found 1, expected 2",
        "input 'i': found elements of another type, expected i64",
        "output 'y': found elements of another type, expected f32",
        "shapes: found 1, expected 2",
        "dims of the input 'i': found 2, expected 1",
        "does not begin as one",
        "param 'w': found elements of another type, expected f32",
        "fault: ",
    ), strict=True):  # fmt: skip
        assert expected in line, said
