"""Targets by name: what they are called, and which one a device gets."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rlx.errors import DeviceError
from rlx.targets import TARGETS, best_features, find_target, parse_target, presets


@pytest.mark.parametrize("name", TARGETS)
def test_every_preset_is_a_target(name: str) -> None:
    for preset in presets(name):
        assert parse_target(f"{name}:{preset}")[1].name == preset
        found = find_target(f"{name}:{preset}")
        assert (found.name, found.features.name) == (name, preset)
    assert find_target(name).features == parse_target(name)[1]


def test_no_module_of_a_target_hides_a_function() -> None:
    code = "import rlx.targets as t, rlx.targets.cpu.features\nprint(t.presets('cpu'))"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", TARGETS)
def test_an_unknown_preset_lists_those_that_there_are(name: str) -> None:
    with pytest.raises(DeviceError) as e:
        parse_target(f"{name}:sm_1")
    assert all(preset in str(e.value) for preset in presets(name))


def test_an_unknown_target_lists_those_that_there_are() -> None:
    with pytest.raises(DeviceError, match=r"called 'cudda'; did you mean 'cuda'\?; there are cpu,"):
        parse_target("cudda:sm_90")


@pytest.mark.parametrize("name", [n for n in TARGETS if n != "cpu"])
def test_a_device_gets_what_it_has(name: str) -> None:
    for preset in presets(name):
        features = parse_target(f"{name}:{preset}")[1]
        assert best_features(name, features.has).has <= features.has


def test_a_device_gets_the_best_that_it_runs() -> None:
    from rlx.targets.cuda.features import runs
    from rlx.targets.gpu.profiles import buffer_words
    from rlx.targets.vulkan.features import EXTRAS

    assert best_features("cuda", runs(90)).name == "sm_90a"
    assert best_features("cuda", runs(87)).name == "sm_86"
    assert best_features("cuda", runs(103)).name == "sm_100"
    with pytest.raises(DeviceError, match="older than sm_75"):
        best_features("cuda", runs(60))
    everything = frozenset([*EXTRAS, *buffer_words(31), "unheard of"])
    assert best_features("vulkan", everything).name == "vulkan1.2"
    assert best_features("vulkan", everything - {"float64"}).name == (
        "vulkan1.1+buffers16+float16+int16+int64+int8+nans"
    )
    assert best_features("vulkan", frozenset(EXTRAS)).name.startswith("vulkan1.1+float16")
    assert best_features("gpu", buffer_words(40)).name == "webgpu+buffers32"
    assert best_features("gpu", buffer_words(8)).name == "webgpu"
    assert best_features("opengl", buffer_words(1 << 20)).name == "opengl4.3+buffers512"
    assert best_features("metal", buffer_words(40)).name == "metal2.4"
    assert best_features("opencl", frozenset()).name == "opencl1.2-fp64"


def test_targets_are_parsed_without_what_compiles() -> None:
    code = (
        "import sys\nfrom rlx.targets import TARGETS, parse_target, presets\n"
        "for name in TARGETS:\n  parse_target(name), presets(name)\n"
        "heavy = [m for m in sys.modules if m.split('.')[0] in ('torch_mlir', 'llvmlite')]\n"
        "assert not heavy and 'rlx._mlir' not in sys.modules, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
