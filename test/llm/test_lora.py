"""LoRA adapters: against what PEFT makes of them, by answer and merged, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx import Mesh
from rlx.distributed import run_threads
from rlx.errors import GraphError, ModelError, ShapeError
from rlx.frontends import gguf
from rlx.llm.config import ModelConfig
from rlx.llm.decoder import Decoder
from rlx.llm.engine import StepRows
from rlx.llm.lora import read_adapter
from rlx.llm.model import LLM
from rlx.llm.weights import from_hf
from rlx.models.safetensors import SafeTensors, write_safetensors
from support.tiny_llm import KEPT, PROMPT, write_model
from support.tiny_lora import ADAPTERS, adapter_tensors, write_adapter

Array = np.ndarray[Any, Any]

FIXTURES = Path(__file__).parent / "fixtures"  # tools/make_lora_fixtures.py
PAGES = [3, 1, 0, 2]
SHAPES: dict[str, Any] = json.loads((FIXTURES / "shapes.json").read_text(encoding="utf-8"))
OPTIONS: dict[str, Any] = {"cache": "f32", "precision": "f32", "threads": 1, "context": 128}


@pytest.fixture(scope="module")
def expected() -> dict[str, Array]:
    with np.load(FIXTURES / "lora.npz") as found:
        return dict(found)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a base model, or of an adapter."""
    root = tmp_path_factory.mktemp("lora")

    def made(name: str) -> Path:
        folder = root / name
        if not folder.exists():
            folder.mkdir()
            if name in SHAPES:
                write_model(folder, SHAPES[name]["config"], SHAPES[name]["shapes"])
            else:
                write_adapter(folder, name, SHAPES[ADAPTERS[name][0]]["shapes"])
        return folder

    return made


def near(found: Array, wanted: Array) -> None:
    assert np.abs(found - wanted).max() <= 5e-5 * wanted.std()


BASES: Mapping[str, list[str]] = {
    base: [name for name, (b, _) in ADAPTERS.items() if b == base] for base, _ in ADAPTERS.values()
}


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "base", [pytest.param(b, marks=SLOW if b == "qwen3-moe" else ()) for b in BASES]
)
def test_logits_are_those_of_peft(
    base: str, expected: dict[str, Array], path: Callable[[str], Path]
) -> None:
    """In one step, beside rows that have none."""
    names = BASES[base]
    m = Decoder.load(path(base), adapters={n: path(n) for n in names}, page_size=32, **OPTIONS)
    with np.load(FIXTURES / "logits.npz") as plain:
        wanted = [plain[f"{base}.logits"], *(expected[name][KEPT] for name in names)]
    entries = [(PROMPT, 0, [2 * n, 2 * n + 1]) for n in range(len(wanted))][: m.pool.capacity // 2]
    found = m.step(StepRows.of(entries, every=True, adapters=range(len(entries))))
    for logits, one in zip(np.split(found, len(entries)), wanted, strict=False):
        near(logits[KEPT], one)


@pytest.mark.parametrize(
    "name", ["every", pytest.param("fused", marks=SLOW), pytest.param("tied", marks=SLOW)]
)
def test_merged_weights(name: str, expected: dict[str, Array], path: Callable[[str], Path]) -> None:
    m = LLM(path(ADAPTERS[name][0]), merge=path(name), **OPTIONS)
    near(m.logits(PROMPT), expected[name])


@pytest.fixture(scope="module")
def llm(path: Callable[[str], Path]) -> LLM:
    adapters = {name: path(name) for name in BASES["llama"]}
    return LLM(path("llama"), adapters=adapters, tokens=512, **OPTIONS)


def test_answers_with_adapters_side_by_side(
    llm: LLM, path: Callable[[str], Path], expected: dict[str, Array]
) -> None:
    """The beginnings that are known of one adapter are not those of another."""
    plain = LLM(path("llama"), **OPTIONS)
    prompt = PROMPT[:36]
    given: dict[str, Any] = {"max_new_tokens": 9, "top_logprobs": 3}
    for adapter in (None, *BASES["llama"]):
        for again in (False, True):
            (one,) = llm.generate(prompt, adapter=adapter, speculate="lookup", **given)
            assert one.cached == 32 * again
            logits = llm.logits([*prompt, *one.ids], adapter=adapter)
            assert list(one.ids) == logits[len(prompt) - 1 : -1].argmax(-1).tolist()
            if adapter is not None:
                near(llm.logits(PROMPT, adapter=adapter), expected[adapter])
    one, two = llm.generate(prompt, **given)[0], plain.generate(prompt, **given)[0]
    assert (one.ids, one.drawn) == (two.ids, two.drawn), "without one it is the model, to the bit"
    with pytest.raises(GraphError, match="no adapter 'x'; there are every, some, layer"):
        llm.generate(prompt, adapter="x")
    with pytest.raises(GraphError, match="no adapter 'every'; the model was loaded with none"):
        plain.logits(prompt, adapter="every")
    vectors = [llm.embed(prompt, pooling="last", adapter=a)[0] for a in (None, "every")]
    assert np.abs(vectors[0] - vectors[1]).max() > 0.01


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_the_bits_of_a_sequence_are_its_own(data: st.DataObject, llm: LLM) -> None:
    """Whatever adapters others have, and in any cut."""
    m, count = llm.decoder, data.draw(st.integers(1, 30))
    adapter = data.draw(st.integers(0, 3))
    alone = m.step(StepRows.of([(PROMPT[:count], 0, [0])], adapters=[adapter]))
    at, entries, logits = 0, list[Any](), alone
    while at < count:
        n = data.draw(st.integers(1, count - at))
        entries, own = [(PROMPT[at : at + n], at, [1])], [adapter]
        for k in range(data.draw(st.integers(0, 3))):
            where = data.draw(st.integers(0, len(entries)))
            entries.insert(where, (PROMPT[: data.draw(st.integers(1, 9))], 0, [2 + k]))
            own.insert(where, data.draw(st.integers(0, 3)))
        logits = m.step(StepRows.of(entries, adapters=own))
        at += n
    row = next(n for n, (_, _, pages) in enumerate(entries) if pages == [1])
    assert logits[row].tobytes() == alone[0].tobytes()


def test_a_number_of_no_adapter(llm: LLM) -> None:
    for n in (-1, 4):
        with pytest.raises(ShapeError, match=f"adapters are from 0 to 3, found {n}"):
            llm.decoder.step(StepRows.of([([1], 0, [0])], adapters=[n]))


# -- files of llama.cpp --------------------------------------------------------------------

NAMES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output",
         "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}  # fmt: skip


def gguf_adapter(file: Path, **other: Any) -> Path:
    """The adapter "every" as llama.cpp's converter writes it: rows of q and k in the order of
    rotary pairs side by side."""
    tensors: dict[str, gguf.Tensor] = {}
    for name, array in adapter_tensors("every", SHAPES["llama"]["shapes"]).items():
        *before, module, part, _ = name.split(".")
        kind = NAMES.get(module)
        heads = {"attn_q": 4, "attn_k": 2}.get(kind or "")
        if part == "lora_B" and heads:
            array = array.reshape(heads, 2, 4, -1).swapaxes(1, 2).reshape(array.shape)  # noqa: PLW2901
        own = "output" if kind is None else f"blk.{before[4]}.{kind}"
        tensors[f"{own}.weight.{part.lower()}"] = gguf.Tensor.of(np.ascontiguousarray(array))
    said = {"general.type": "adapter", "general.architecture": "llama", "adapter.type": "lora",
            "adapter.lora.alpha": np.float32(8), **other}  # fmt: skip
    gguf.write(file, tensors, {k: v for k, v in said.items() if v is not None})
    return file


def test_gguf(path: Callable[[str], Path], tmp_path: Path) -> None:
    config = ModelConfig.from_hf(SHAPES["llama"]["config"])
    weights = from_hf(str(path("llama")), config)
    found = read_adapter(gguf_adapter(tmp_path / "every.gguf"), config, weights).pairs
    wanted = read_adapter(path("every"), config, weights).pairs
    assert found.keys() == wanted.keys() and len(found) == 22
    for name, pair in wanted.items():
        np.testing.assert_array_equal(found[name].a, pair.a)
        np.testing.assert_array_equal(found[name].b, pair.b)
    alone = gguf_adapter(tmp_path / "x.gguf", **{"adapter.lora.alpha": None})
    none = read_adapter(alone, config, weights).pairs["output"]
    np.testing.assert_array_equal(none.b * 2, wanted["output"].b)


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"general.type": "model"}, "are 'model' and 'lora', expected 'adapter' and 'lora'"),
        ({"adapter.type": None}, "are 'adapter' and None, expected"),
        ({"general.architecture": "qwen2"}, "is for a model of 'qwen2', and this is a llama"),
    ],
)
def test_wrong_gguf(
    said: dict[str, Any], says: str, path: Callable[[str], Path], tmp_path: Path
) -> None:
    file = gguf_adapter(tmp_path / "x.gguf", **said)
    with pytest.raises(ModelError, match=says):
        Decoder.load(path("llama"), adapters={"x": file}, **OPTIONS)


# -- what does not fit ---------------------------------------------------------------------

Q = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"


def _without(name: str) -> Callable[[dict[str, Array]], None]:
    return lambda tensors: tensors.pop(name, None)  # pyright: ignore[reportReturnType]


def _with(name: str, shape: tuple[int, ...]) -> Callable[[dict[str, Array]], None]:
    return lambda tensors: tensors.update({name: np.ones(shape, np.float32)})


def _cut(tensors: dict[str, Array]) -> None:
    for name in [n for n in tensors if ".layers.2." in n]:
        del tensors[name]


WRONG_TENSORS: dict[str, tuple[Callable[[dict[str, Array]], None], str]] = {
    "no pairs": (dict.clear, "has no pairs of lora_A and lora_B"),
    "half": (_without(Q.format(1, "B")), "has no lora_B for blk.1.attn_q, whose other half"),
    "other half": (_without(Q.format(1, "A")), "has no lora_A for blk.1.attn_q"),
    "ranks": (_with(Q.format(0, "B"), (32, 5)), "lora_A of blk.0.attn_q has rank 4 and lora_B 5"),
    "a rank": (_with(Q.format(0, "A"), (5, 32)), "q_proj has rank 5, and adapter_config.json says"),
    "not finite": (
        lambda t: t.update({Q.format(0, "B"): t[Q.format(0, "B")] * np.float32(np.inf)}),
        "the pair of blk.0.attn_q has numbers that are not finite",
    ),
    "another base": (_with(Q.format(0, "A"), (4, 48)), r"adapts a blk.0.attn_q of \[32, 48\], and"),
    "no matrix": (_with(Q.format(0, "A"), (4,)), r"lora_A.weight is \[4\], expected a matrix"),
    "a layer": (
        lambda t: t.update({Q.format(3, p): t[Q.format(2, p)] for p in "AB"}),
        "adapts blk.3.attn_q, which the model does not have: it is a llama of 3 layers",
    ),
    "fewer layers": (_cut, "has no pair for q_proj in layer 2, which it lists as a target"),
    "a target": (
        _with("base_model.model.model.layers.0.mlp.conv.lora_A.weight", (4, 32)),
        "adapts model.layers.0.mlp.conv, which is no matrix of a llama that adapters may change",
    ),
    "embeddings": (
        _with("base_model.model.model.embed_tokens.lora_A.weight", (4, 96)),
        "adapts model.embed_tokens, which is no matrix",
    ),
    "more": (
        _with("base_model.model.lm_head.weight", (96, 32)),
        "lm_head.weight is no part of a LoRA that RLX runs",
    ),
}
WRONG_CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "no lora": ({"peft_type": "IA3"}, "is an adapter of type 'IA3'; LORA can be run"),
    "dora": ({"use_dora": True}, "products of low rank, which RLX has not: use_dora: True"),
    "saved": ({"modules_to_save": ["lm_head"]}, r"modules_to_save: \['lm_head'\]"),
    "bias": ({"bias": "all"}, "bias: 'all'"),
    "base": ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights: 'pissa_niter_4'"),
    "r": ({"r": 0}, "has 0 for r, expected a positive number"),
    "alpha": ({"alpha_pattern": {"q_proj": "x"}}, "has 'x' for lora_alpha"),
    "pattern": ({"alpha_pattern": {"(": 2}}, r"has '\(', which is no regular expression"),
    "target": ({"target_modules": ["x_proj"]}, "has no pair for x_proj, which it lists"),
}


@pytest.fixture(scope="module")
def base(path: Callable[[str], Path]) -> Decoder:
    return Decoder.load(path("llama"), **OPTIONS)


@pytest.mark.parametrize("case", [*WRONG_TENSORS, *WRONG_CONFIGS])
def test_what_does_not_fit(case: str, path: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    change, says = WRONG_TENSORS.get(case, (None, ""))
    other, says = WRONG_CONFIGS.get(case, ({}, says))
    write_adapter(folder, "every", SHAPES["llama"]["shapes"], **other)
    if change is not None:
        tensors = dict(SafeTensors(folder / "adapter_model.safetensors"))
        change(tensors)
        (folder / "adapter_model.safetensors").unlink()
        write_safetensors(folder / "adapter_model.safetensors", tensors)
    with pytest.raises(ModelError, match=says):
        Decoder.load(path("llama"), adapters={"x": folder}, **OPTIONS)


def test_folders_that_are_not_whole(path: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shutil.copytree(path("every"), tmp_path / "x")
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"has no adapter_model.safetensors, which holds"):
        Decoder.load(path("llama"), merge=[folder], **OPTIONS)
    (folder / "adapter_config.json").unlink()
    with pytest.raises(ModelError, match=r"adapter_config.json is missing"):
        Decoder.load(path("llama"), merge=[folder], **OPTIONS)


def test_ranks_have_parts_of_adapters(
    path: Callable[[str], Path], expected: dict[str, Array]
) -> None:
    """Which the first of them says of each sequence."""
    mesh, base, adapter = Mesh(model=2), path("llama"), path("every")

    def drawn(rank: int) -> Array:
        m = Decoder.load(base, adapters={"every": adapter}, mesh=mesh, **OPTIONS)
        return m.step(StepRows.of([(PROMPT, 0, PAGES)], every=True, adapters=[1]))

    for found in run_threads(mesh, drawn):
        near(found, expected["every"])
