"""Bad command lines of rlx and rlx-opt, and bad environment variables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest

from rlx import knobs
from rlx.errors import DeviceError, KnobError
from rlx.targets.cpu.features import selected
from rlx.tools import cli, opt
from support import tiny_bert
from support.bad_calls import Bad, check, ids

GOOD = """
func.func @main(%x: tensor<2xf32> {rlx.input = "x"}) -> tensor<2xf32> {
  %y = "mir.exp"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}
"""


class Command(NamedTuple):
    """A command line, its exit code, and what it must say; {tmp} is a folder with ``good.mlir``
    and ``model``, a model directory."""

    code: int
    says: str
    line: str


RLX_OPT = [
    Command(2, "no pass is called 'fuze'; did you mean 'fuse'", "good.mlir --fuze"),
    Command(2, "target cpu has no stage 'objekt'; it has hir, mir", "good.mlir --emit=objekt"),
    Command(2, "argument --dispatch: invalid choice: 'fast'", "good.mlir --dispatch=fast"),
    Command(2, "argument --target: expected one argument", "good.mlir --target"),
    Command(2, "argument -o: expected one argument", "good.mlir -o"),
    Command(2, "unrecognized arguments: more.mlir", "good.mlir more.mlir"),
    Command(2, "no target is called 'cpuu'; did you mean 'cpu'", "good.mlir --target=cpuu"),
    Command(2, "no target is called ''; there are cpu", "good.mlir --target="),
    Command(2, "unknown CPU 'x86-64-v9'", "good.mlir --target=cpu:x86-64-v9"),
    Command(2, "unknown extra ''", "good.mlir --target=cpu:x86-64-v4+"),
    Command(2, "target cpu has no stage 'ptx'; it has hir", "good.mlir --emit=ptx"),
    Command(2, "target cuda has no stage 'asm'", "good.mlir --emit=asm --target=cuda:sm_90"),
    Command(
        2,
        "no text: take one input a call",
        "good.mlir --emit=spirv --target=vulkan --split-input-file",
    ),
    Command(2, "no pass is called 'fuze'; did you mean 'fuse'", "good.mlir --pass-pipeline=fuze"),
    Command(2, "no pass is called 'inlin'", "good.mlir --pass-pipeline=builtin.module(cse,inlin)"),
    Command(2, "pass fuse has no option 'x'", "good.mlir --pass-pipeline=fuse{x=1}"),
    Command(1, "no-such.mlir: No such file", "no-such.mlir"),
    Command(1, ": Is a directory", "model"),
    Command(1, "No such file or directory", "good.mlir -o no/such/folder.mlir"),
    Command(1, "cannot go back to hir", "lir.mlir --emit=hir"),
    Command(1, "byte 0xff at offset 3 is not text", "binary.mlir"),
    Command(2, "canonicalize", "good.mlir --pass-pipeline=canonicalize{nothing=1}"),
]

RLX = [
    Command(2, "usage: rlx [-h] [--version] [--debug] COMMAND", ""),
    Command(2, "no command is called 'embbed'; did you mean 'embed'", "embbed"),
    Command(2, "no command is called 'xyzzy'; there are bench, cache", "xyzzy"),
    Command(2, "no choice is called 'rum'; did you mean 'run'", "help rum"),
    Command(
        2, "no choice is called 'powershell'; expected bash, zsh, fish", "completion powershell"
    ),
    Command(2, "no command is called 'lst'; did you mean 'list'", "cache lst"),
    Command(2, "rlx cache explain: unrecognized arguments: --din", "cache explain --din n=1"),
    Command(2, "unrecognized arguments: --outptu; did you mean '--output'", "run x --outptu"),
    Command(1, "good.mlir: nothing was given for the input x: f32[2]; give", "run good.mlir"),
    Command(1, "no input is called 'y'", "run good.mlir --input y=zero.npy"),
    Command(1, "and good.mlir is a graph's text", "run good.mlir --constant x=good.npy"),
    Command(1, "folder of a language model, whose steps have a state", "bench decoder"),
    Command(1, "decoder has no .safetensors files", "inspect decoder"),
    Command(1, "--context is of language models", "compile good.mlir -o x.rlx --context 8"),
    Command(1, "--context is 1 token or more, found 0", "compile decoder -o x.rlx --context 0"),
    Command(1, "has its weights, and no inputs", "compile decoder -o x.rlx --params x.npz"),
    Command(1, "out.html is there already; give another", "view good.mlir -o out.html"),
    Command(1, "out.html is there already; give another", "compile good.mlir -o out.html"),
    Command(1, "out.html is there already; give another", "reduce good.mlir -o out.html"),
    Command(1, "program.json is there already", "export-web good.mlir -o site"),
    Command(1, "-k 0: expected 1 or more", "search model a -k 0"),
    Command(1, "there are no sentences to search; give --file", "search model a"),
    Command(1, "no sentences to search", "search model a --vectors zero.npy"),
    Command(1, "holds no table of vectors", "search model a --file good.mlir --vectors flat.npy"),
    Command(1, "cannot read vectors from good.npy", "search model a --vectors good.npy"),
    Command(
        1,
        "has 2 vectors, good.mlir 4 sentences",
        "search model a --file good.mlir --vectors zero.npy",
    ),
    Command(1, "has vectors of 3, the model makes", "search model a --vectors v.jsonl"),
    Command(1, "w.jsonl:2 is no text with its vector", "search model a --vectors w.jsonl"),
    Command(1, "u.jsonl has no vectors of one length", "search model a --vectors u.jsonl"),
    Command(1, "--pooling is of language models", "embed model a --pooling mean"),
    Command(2, "arguments are required: MODEL\n", "embed"),
    Command(1, "nothing to encode; give", "embed model"),
    Command(1, "'good.mlir' would be taken for a sentence; write --file", "embed model good.mlir"),
    Command(1, "'-' would be taken for a sentence; write --file -", "embed model -"),
    Command(1, "on the command line or in --file, not in both", "embed model a --file good.mlir"),
    Command(1, "cannot read none.txt: No such file", "embed model --file none.txt"),
    Command(1, "empty.txt has no sentences; expected one a line", "embed model --file empty.txt"),
    Command(1, "is no text in UTF-8: byte 3 of it", "embed model --file binary.mlir"),
    Command(1, "expected a name in .npy, .safetensors or .jsonl", "embed model a -o a.txt"),
    Command(1, "good.npy is there already; give another name", "embed model a -o good.npy"),
    Command(1, "a table of 51 sentences is too large to read", "similar model" + " a" * 51),
    Command(
        1,
        "pages run on webgpu or wasm, found 'vk'; rlx compile",
        "export-web good.mlir -o s --device vk",
    ),
    Command(2, "invalid int value: 'many'", "embed model text --threads many"),
    Command(2, "unrecognized arguments: --no-such", "embed model text --no-such"),
    Command(1, "there is no folder nowhere, and RLX downloads nothing", "embed nowhere text"),
    Command(
        1, "good.mlir is a file, expected a model directory, with config.json", "embed good.mlir a"
    ),
    Command(1, "there is no folder ~/model, and RLX downloads nothing\n", "embed ~/model text"),
    Command(1, "fetch it: hf download some/model --local-dir", "embed some/model text"),
    Command(2, "no command is called 'info'; write rlx inspect", "info model.onnx"),
    Command(1, "unknown device 'cpuu'; did you mean 'cpu'", "embed model text --device cpuu"),
    Command(1, "threads: found 0, expected", "embed model text --threads 0"),
    Command(1, "threads: found -1, expected", "embed model text --threads=-1"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bad")
    (path / "good.mlir").write_text(GOOD)
    (path / "binary.mlir").write_bytes(b"abc\xff")
    (path / "lir.mlir").write_text(
        'module { func.func private @k() attributes {lir.family = "copy"} }'
    )
    (path / "empty.txt").write_text("\n \n")
    (path / "good.npy").write_bytes(b"")
    np.save(path / "zero.npy", np.zeros((2, 3), np.float32))
    np.save(path / "flat.npy", np.zeros(3, np.float32))
    vector = '{"text": "a", "vector": [1, 0, 0]}\n'
    (path / "v.jsonl").write_text(vector)
    (path / "w.jsonl").write_text(vector + '{"text": "b"}\n')
    (path / "u.jsonl").write_text(vector + '{"text": "b", "vector": [1]}\n')
    (path / "out.html").write_text("mine")
    for name in ("decoder", "site"):
        (path / name).mkdir()
    (path / "decoder" / "config.json").write_text('{"model_type": "llama"}')
    (path / "site" / "program.json").write_text("{}")
    tiny_bert.write(path / "model")
    return path


@pytest.mark.parametrize(
    ("main", "command"),
    [*((opt.main, c) for c in RLX_OPT), *((cli.main, c) for c in RLX)],
    ids=[f"{name} {c.line}" for name, cs in (("rlx-opt", RLX_OPT), ("rlx", RLX)) for c in cs],
)
def test_a_bad_command_line(
    main: Any, command: Command, folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RLX_CPU", "x86-64-v3")
    try:
        code = main(command.line.split())
    except SystemExit as end:  # argparse
        code = end.code
    out, err = capsys.readouterr()
    assert (code, out) == (command.code, "")
    assert command.says in err and "Traceback" not in err


KNOBS = [
    Bad(KnobError, "RLX_NUM_THREADS is 'many'.*expected a number", lambda: knobs.num_threads.get()),
    Bad(
        KnobError,
        "RLX_NUM_THREADS is '-1' .it is out of range.; expected a number",
        lambda: knobs.num_threads.get(),
    ),
    Bad(KnobError, "RLX_NUM_THREADS is '1.5'.*expected a number", lambda: knobs.num_threads.get()),
    Bad(KnobError, "RLX_NUM_THREADS is ' '.*expected a number", lambda: knobs.num_threads.get()),
    Bad(DeviceError, "unknown CPU 'x86-64-v2'; did you mean", lambda: selected()),
    Bad(DeviceError, "unknown extra 'avx9'.*known are", lambda: selected()),
    Bad(DeviceError, "unknown extra 'dotprod' of x86-64-v3.*known are none", lambda: selected()),
]
VALUES = [
    {"RLX_NUM_THREADS": "many"}, {"RLX_NUM_THREADS": "-1"}, {"RLX_NUM_THREADS": "1.5"}, {"RLX_NUM_THREADS": " "},
    {"RLX_CPU": "x86-64-v2"}, {"RLX_CPU": "x86-64-v4+avx9"}, {"RLX_CPU": "x86-64-v3+dotprod"},
]  # fmt: skip


@pytest.mark.parametrize(("bad", "value"), list(zip(KNOBS, VALUES, strict=True)), ids=ids(KNOBS))
def test_a_bad_environment_variable(bad: Bad, value: dict[str, str]) -> None:
    with mock.patch.dict(os.environ, value):
        check(bad)
