"""Models with recurrent states: the slots of these, and the bits of a sequence."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import gguf as reference
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
from rlx.errors import GraphError, ModelError, ShapeError
from rlx.frontends import gguf
from rlx.llm.arguments import RoomError
from rlx.llm.batching.scheduler import Limits, Schedule, cancel, commit, next_step, submit
from rlx.llm.config import ModelConfig
from rlx.llm.decoder import Decoder
from rlx.llm.engine import StepRows
from rlx.llm.pages import KvPagePool
from rlx.llm.weights import from_hf, read_model
from support.tiny_llm import LENGTH, PROMPT, write_model

SHAPES = json.loads((Path(__file__).parent / "fixtures/shapes.json").read_text(encoding="utf-8"))
SMALL: dict[str, Any] = {"threads": 1, "precision": "f32", "context": 64, "sequences": 2}


def written(name: str, folder: Path) -> Path:
    write_model(folder, SHAPES[name]["config"], SHAPES[name]["shapes"])
    return folder


@pytest.fixture(scope="module", params=["mamba2", "qwen3-next", "nemotron-h"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of states alone, and one that has keys and values too."""
    return written(request.param, tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def models(folder: Path) -> list[Decoder]:
    return [Decoder.load(folder, threads=n, context=512, sequences=8) for n in (1, 2)]


@pytest.fixture(scope="module")
def llm(folder: Path) -> rlx.LLM:
    return rlx.LLM(folder, **SMALL)


@settings(max_examples=20)
@given(data=st.data())
def test_the_bits_of_a_sequence_are_its_own(data: st.DataObject, models: list[Decoder]) -> None:
    """Alone, in any batch, under any cut of its prompt, in any slot, at 1 and 2 threads."""
    one, two = models
    count = data.draw(st.integers(1, LENGTH))

    def pages(n: int) -> list[int]:
        own = min(one.cache.pages // 4, one.cache.table[1])
        return [*range(n * own, (n + 1) * own)]

    alone = one.step(StepRows.of([(PROMPT[:count], 0, pages(0))], states=[0]))[0]
    m = data.draw(st.sampled_from([one, two]))
    mine, theirs = data.draw(st.permutations(range(4)))[:2]
    at = other = 0
    found = None
    while at < count:
        n = data.draw(st.integers(1, count - at))
        entries, states = [(PROMPT[at : at + n], at, pages(mine))], [mine]
        if data.draw(st.booleans()):
            more, first = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 1))
            entries.insert(first, (PROMPT[other : other + more], other, pages(theirs)))
            states.insert(first, theirs)
            other = other + more if other < LENGTH - 6 else 0
        logits = m.step(StepRows.of(entries, states=states))
        found = logits[states.index(mine)]
        at += n
    assert found is not None
    assert found.tobytes() == alone.tobytes()


def test_answers_share_slots_that_are_free_again(llm: rlx.LLM) -> None:
    prompts = [PROMPT[n : 2 * n + 3] for n in range(5)]
    options: dict[str, Any] = {"max_new_tokens": 6, "ignore_eos": True}
    together = [a.ids for a in llm.generate(prompts, **options)]
    assert together == [llm.generate([p], **options)[0].ids for p in prompts]
    again = llm.generate([prompts[-1]], **options)[0]
    assert again.cached == 0, "states of a prefix are not kept"
    assert llm.logits(PROMPT[:9]).shape == (9, llm.vocab)
    assert llm.embed([PROMPT[:9]], pooling="last").shape == (1, 32)
    states = llm.decoder.states
    assert states is not None
    assert states.used_count == llm.decoder.pool.used_count == 0


def test_sequences_that_give_way_give_their_slots_back() -> None:
    pool, states = KvPagePool(5, 1, 4), KvPagePool(2, 1, 1)
    schedule = Schedule.of(pool, Limits(8, 3, 16), states)
    for n in range(3):
        submit(schedule, n, [1] * 5, 12)
    for _ in range(60):
        step = next_step(schedule)
        own = [e.state for e in step]
        assert len(set(own)) == len(own) and states.used_count == len(schedule.running) <= 2
        for e in step:
            assert e.cached or e.tokens[0] == 1, "what gave way begins anew"
        commit(schedule, step, {e.name: [2] for e in step if e.last})
        for name in [s.name for s in schedule.running.values() if len(s.tokens) >= 12]:
            assert cancel(schedule, name)
    assert schedule.preemptions > 0
    assert not schedule.running and not schedule.waiting and states.used_count == 0


HYBRIDS = {
    "jamba": "jamba", "granite-hybrid": "granitehybrid", "nemotron-h": "nemotron_h_moe",
    "lfm2": "lfm2", "lfm2-moe": "lfm2moe",
}  # fmt: skip


def as_in_gguf(name: str, folder: Path) -> Path:
    """A hybrid model as a folder and as a GGUF file, with the keys that llama.cpp asks for."""
    # The files have no key for the limits of step sizes.
    said = {**SHAPES[name]["config"], "time_step_limit": None, "time_step_min": 0.0}
    write_model(folder, said, SHAPES[name]["shapes"])
    config, arch = ModelConfig.from_hf(said), HYBRIDS[name]
    r = config.recurrent
    assert r is not None
    theirs = {"output_norm": "output_norm"}
    if arch.startswith("lfm2"):
        theirs = {"output_norm": "token_embd_norm", "ssm_in": "shortconv.in_proj",
                  "ssm_conv1d": "shortconv.conv", "ssm_out": "shortconv.out_proj"}  # fmt: skip
    tensors = {
        ".".join(theirs.get(part, part) for part in n.split(".")): t
        for n, t in from_hf(str(folder), config).items()
    }
    for n, norm in [(n, t.numpy()) for n, t in tensors.items() if "ssm_norm" in n]:
        tensors[n] = gguf.Tensor.of(norm.reshape(r.groups, -1))
    heads = np.array([config.kv_heads * a for a in config.attends], np.uint32)
    inner = np.array([config.inner * (k == "network") for k in config.kinds], np.uint32)
    sizes: dict[str, Any] = {
        "vocab_size": config.vocab,
        "embedding_length": config.hidden,
        "block_count": config.layers,
        "context_length": config.context,
        "attention.head_count": config.heads,
        "attention.head_count_kv": heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "attention.layer_norm_rms_epsilon": config.eps,
        "attention.layer_norm_epsilon": config.eps,
        "attention.scale": config.attention_scale,
        "feed_forward_length": config.inner if config.family.network else inner,
        "rope.freq_base": config.rotary.theta,
        "rope.dimension_count": config.rotary.dim,
        "rope.scaling.finetuned": False,
        "residual_scale": config.residual_scale,
        "logit_scale": 1 / config.logit_scale,
        "embedding_scale": config.embedding_scale,
        "expert_count": config.experts,
        "expert_used_count": config.experts_used,
        "expert_feed_forward_length": config.expert_inner,
        "expert_weights_scale": config.expert_scale,
        "expert_weights_norm": config.expert_norm,
        "expert_gating_func": 2 if config.family.router == "sigmoid" else 1,
        "shortconv.l_cache": r.kernel,
        "ssm.conv_kernel": r.kernel,
        "ssm.inner_size": r.inner,
        "ssm.state_size": r.size,
        "ssm.time_step_rank": r.rank or r.heads,
        "ssm.group_count": r.groups,
        "leading_dense_block_count": 1,
        "moe_latent_size": 16,
        "expert_shared_count": 1,
        "expert_shared_feed_forward_length": 20,
    }
    if config.experts:
        sizes["expert_group_count"] = config.expert_groups
        sizes["expert_group_used_count"] = config.groups_used
    metadata: dict[str, Any] = {
        f"{arch}.{k}": v for k, v in sizes.items() if type(v) is bool or np.any(v)
    }
    whole = {k: "u32" for k, v in metadata.items() if type(v) is int}
    metadata |= {"general.architecture": arch, "tokenizer.ggml.model": "none"}
    gguf.write(folder / "model.gguf", tensors, metadata, kinds=whole)
    return folder / "model.gguf"


@pytest.mark.parametrize("name", HYBRIDS)
def test_gguf_files_of_hybrids(name: str, tmp_path: Path) -> None:
    """Under the names that the gguf package has for the architecture."""
    path = as_in_gguf(name, tmp_path)
    arch = next(k for k, v in reference.MODEL_ARCH_NAMES.items() if v == HYBRIDS[name])
    known = {reference.TENSOR_NAMES[k].format(bid=0) for k in reference.MODEL_TENSORS[arch]}
    names = {re.sub(r"^blk[.]\d+", "blk.0", n).rpartition(".")[0] for n in gguf.GGUF(path)}
    # Those of lfm2moe have one matrix for embeddings and logits, and no name for another.
    assert names - {"blk.0", "output"} <= known
    found, wanted = ModelConfig.from_gguf(gguf.GGUF(path).metadata, 96), read_model(tmp_path)[0]
    assert (found.kinds, found.turned) == (wanted.kinds, wanted.turned)
    assert found.recurrent == wanted.recurrent
    ours, theirs = (
        Decoder.load(p, threads=1, context=64, page_size=32, cache="f32").step(
            StepRows.of([(PROMPT, 0, [0, 1])], states=[0])
        )
        for p in (path, tmp_path)
    )
    assert np.abs(ours - theirs).max() <= 5e-5 * theirs.std()


@pytest.mark.parametrize("name", ["mamba", "mamba2", "falcon-mamba"])
def test_gguf_files(name: str, tmp_path: Path) -> None:
    """Under the names that the gguf package has for the architecture."""
    row = SHAPES[name]
    # Files say one epsilon for all norms.
    said = {**row["config"], "mixer_rms_eps": row["config"].get("layer_norm_epsilon")}
    said = said if name == "falcon-mamba" else row["config"]
    write_model(tmp_path, said, row["shapes"])
    config, folder = ModelConfig.from_hf(said), tmp_path
    arch, r = config.family.name, config.recurrent
    assert r is not None
    tensors = from_hf(str(folder), config)
    keys = reference.MODEL_TENSORS[getattr(reference.MODEL_ARCH, arch.upper())]
    known = {reference.TENSOR_NAMES[k].format(bid=0) for k in keys}
    assert {n.removesuffix(".weight").removesuffix(".bias") for n in tensors if ".1." not in n
            and ".2." not in n} <= known  # fmt: skip
    sizes = {
        "embedding_length": config.hidden, "block_count": config.layers, "context_length": 1 << 20,
        "attention.layer_norm_rms_epsilon": config.eps, "ssm.conv_kernel": r.kernel,
        "ssm.inner_size": r.inner, "ssm.state_size": r.size,
        "ssm.time_step_rank": r.rank or r.heads, "ssm.group_count": r.groups,
        "ssm.dt_b_c_rms": r.part_eps > 0,
    }  # fmt: skip
    metadata = {"general.architecture": arch, **{f"{arch}.{k}": v for k, v in sizes.items()}}
    gguf.write(tmp_path / "model.gguf", tensors, metadata)
    found, wanted = (
        Decoder.load(p, threads=1, context=64).step(StepRows.of([(PROMPT, 0, [0])], states=[0]))
        for p in (tmp_path / "model.gguf", folder)
    )
    if name == "mamba2":  # the files have no key for the limits of step sizes
        assert np.isfinite(found).all()
    else:
        assert np.abs(found - wanted).max() <= 5e-5 * wanted.std()


def test_refusals(folder: Path, llm: rlx.LLM, models: list[Decoder]) -> None:
    with pytest.raises(ShapeError, match="1 sequences of a model with states need a slot each"):
        models[0].step(StepRows.of([([1], 0, [0])]))
    with pytest.raises(GraphError, match="has recurrent states, which are not taken back"):
        llm.generate([1], speculate="lookup")
    with pytest.raises(GraphError, match="has recurrent states, which are not taken back"):
        rlx.LLM(folder, speculate="lookup", **SMALL)
    with pytest.raises(GraphError, match="has recurrent states, which are not taken back"):
        rlx.LLM(folder, speculate=llm, **SMALL)
    with pytest.raises(ModelError, match="has states, which are not cut for several ranks"):
        rlx.LLM(folder, mesh=rlx.Mesh(model=2), **SMALL)
    states = llm.decoder.states
    assert states is not None
    taken = [states.alloc(), states.alloc()]
    with pytest.raises(RoomError, match="hold the states of all sequences"):
        llm.logits([1])
    for slot in taken:
        assert slot is not None
        states.free(slot)
    for name, change, match in (
        ("mamba2", {"conv_kernel": 1}, "of 1 taps"),
        ("mamba2", {"n_groups": 3}, "do not divide"),
        ("mamba2", {"time_step_limit": [3]}, r"time_step_limit is \[3\], expected two numbers"),
        ("mamba", {"expand": "2"}, "expand is '2', expected a positive number"),
        ("mamba", {"hidden_act": "gelu"}, "has silu, found the activation 'gelu'"),
    ):
        with pytest.raises(ModelError, match=match):
            ModelConfig.from_hf({**SHAPES[name]["config"], **change})


@pytest.mark.parametrize("wrong", ["x", 0, None])
def test_metadata_of_other_kinds(wrong: Any) -> None:
    said = {"embedding_length": 32, "block_count": 1, "ssm.inner_size": wrong,
            "ssm.time_step_rank": 4}  # fmt: skip
    metadata = {"general.architecture": "mamba2", **{f"mamba2.{k}": v for k, v in said.items()}}
    with pytest.raises(ModelError, match=f"the metadata has {wrong!r} for ssm.inner_size"):
        ModelConfig.from_gguf(metadata, 96)


def test_what_configurations_say_in_other_ways(tmp_path: Path) -> None:
    """Files of transformers: infinity, norms whose epsilon is not there, a factor of 1.5."""
    limits = {"time_step_limit": [0.0, {"__float__": "Infinity"}]}
    write_model(tmp_path, {**SHAPES["mamba2"]["config"], **limits}, SHAPES["mamba2"]["shapes"])
    found = read_model(tmp_path)[0].recurrent
    assert found is not None and (found.least, found.most) == (0.0, math.inf)
    config = SHAPES["falcon-mamba"]["config"]
    without = {k: v for k, v in config.items() if k != "mixer_rms_eps"}
    assert ModelConfig.from_hf(without) == ModelConfig.from_hf(config)
    wider = ModelConfig.from_hf({**SHAPES["mamba"]["config"], "expand": 1.5}).recurrent
    assert wider is not None and wider.inner == 48


def test_a_batch_has_a_known_size() -> None:
    x, w = (rlx.Graph("g").input("x", s) for s in (["n", 2, 8], [4, 8]))
    g = rlx.Graph("rows")
    own = g.input("x", [2, 8]), g.input("w", [4, 8]), g.input("s", [3, 3, 8])
    slots, positions = (g.input(n, [2], "i32") for n in ("slots", "positions"))
    node = own[0].causal_conv_rows(*own[1:], slots, positions)[0].op
    assert node is not None
    with pytest.raises(ShapeError, match="a batch of n is not known"):
        node.batch([x, w, own[2], slots, positions], [True, False, False, False, False])
    none = rlx.Graph("g").input("x", [0, 2, 8])
    with pytest.raises(ShapeError, match="a batch has one element or more, found none"):
        node.batch([none, w, own[2], slots, positions], [True, False, False, False, False])


def test_donated_states_are_written_in_place() -> None:
    g = rlx.Graph("states")
    x, w = g.input("x", ["rows", 8]), g.input("w", [4, 8])
    state = g.input("state", [3, 3, 8])
    slots, positions = (g.input(n, ["rows"], "i32") for n in ("slots", "positions"))
    g.set_outputs(list(x.causal_conv_rows(w, state, slots, positions)))
    f = rlx.Session("cpu").compile(g, donate=((2, 1),))
    f.run({
        "x": np.ones((2, 8), np.float32), "w": np.ones((4, 8), np.float32),
        "state": np.ones((3, 3, 8), np.float32), "slots": np.zeros(2, np.int32),
        "positions": np.arange(2, dtype=np.int32),
    })  # fmt: skip
    assert not [n for n in f.reports[0].compilation.dispatch.native if n.startswith("copy")]
    with pytest.raises(rlx.errors.FaultError, match="a row's slot is outside the states"):
        f.run({
            "x": np.ones((1, 8), np.float32), "w": np.ones((4, 8), np.float32),
            "state": np.ones((3, 3, 8), np.float32), "slots": np.full(1, 3, np.int32),
            "positions": np.zeros(1, np.int32),
        })  # fmt: skip
