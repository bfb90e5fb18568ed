"""What networks of integers take on Cortex-M: instructions, flash and RAM, on QEMU's boards.

    python tools/cortexm_report.py [--models mlp,cnn,keywords,anomaly] [--cores m3,m4,m33,m55]
        [--images 8] [--folder build/cortexm] [--floats] [--peer]

It needs arm-none-eabi-gcc and qemu-system-arm, and prints the rows of docs/cortexm.md. Weights are
random: what is counted depends on the sizes alone. With --peer, emlearn's C (its package, and
Debian's libnewlib-arm-none-eabi) runs the same MLP in its floats.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx import cortexm
from rlx.targets.cortexm.features import preset
from rlx.targets.cortexm.firmware import LINK, OPTIONS, QEMU
from rlx.targets.integer.network import Product

RNG = np.random.default_rng(0)


def param(g: rlx.Graph, name: str, *shape: int) -> rlx.Value:
    """A param of random numbers, which keep the size of what they multiply."""
    numbers = RNG.standard_normal(shape)
    fan = numbers[0].size if len(shape) > 2 else len(numbers)
    return g.param(name, value=(numbers / np.sqrt(fan)).astype(np.float32))


def mlp() -> rlx.Graph:
    """784, 64 and 10: MNIST's sizes."""
    g = rlx.Graph("mlp")
    h = (g.input("x", ["n", 784]) @ param(g, "w0", 784, 64) + param(g, "b0", 64)).relu()
    g.set_outputs([h @ param(g, "w1", 64, 10) + param(g, "b1", 10)])
    return g


def cnn() -> rlx.Graph:
    """Two convolutions and pools on 28 x 28, and a dense layer."""
    g = rlx.Graph("cnn")
    h = g.input("x", ["n", 1, 28, 28])
    for i, (before, after) in enumerate(((1, 8), (8, 16))):
        w, b = param(g, f"c{i}", after, before, 3, 3), param(g, f"b{i}", after)
        h = h.conv2d(w, b, padding=1).relu().max_pool2d(2)
    g.set_outputs([(h.flatten(1) @ param(g, "w", 784, 10)).argmax(axis=-1)])
    return g


def keywords() -> rlx.Graph:
    """The depthwise separable network of MLPerf Tiny's keyword spotting: 49 x 10, 64 channels."""
    g, c = rlx.Graph("keywords"), 64
    h = g.input("x", ["n", 1, 49, 10])
    h = h.conv2d(param(g, "c", c, 1, 10, 4), param(g, "b", c), stride=2, padding=((4, 5), (1, 1)))
    h = h.relu()
    for i in range(4):
        w, b = param(g, f"d{i}", c, 1, 3, 3), param(g, f"e{i}", c)
        h = h.conv2d(w, b, padding=1, groups=c).relu()
        h = h.conv2d(param(g, f"p{i}", c, c, 1, 1), param(g, f"q{i}", c)).relu()
    g.set_outputs([h.mean(axes=(2, 3)) @ param(g, "w", c, 12) + param(g, "z", 12)])
    return g


def anomaly() -> rlx.Graph:
    """MLPerf Tiny's autoencoder of anomaly detection."""
    g = rlx.Graph("anomaly")
    h = g.input("x", ["n", 640])
    sizes = [640, *[128] * 4, 8, *[128] * 4, 640]
    for i, (k, n) in enumerate(pairwise(sizes)):
        h = h @ param(g, f"w{i}", k, n) + param(g, f"b{i}", n)
        h = h.relu() if n != 640 else h
    g.set_outputs([h])
    return g


MODELS: dict[str, Callable[[], rlx.Graph]] = {
    "mlp": mlp, "cnn": cnn, "keywords": keywords, "anomaly": anomaly,
}  # fmt: skip


PEER = """
#include "eml_net.h"
#include "model.h"
#include "tables.h"
static float x[784], a[784], b[784];
static const EmlNetLayer layers[2] = {
    {64, 784, w0, b0, EmlNetActivationRelu}, {10, 64, w1, b1, EmlNetActivationIdentity}};
static EmlNet net = {2, layers, a, b, 784};
static float out[10];
int8_t *model_input(void) { return (int8_t *)x; }
const int16_t *model_run(void) {
  eml_net_regress(&net, x, 784, out, 10);
  return (const int16_t *)out;
}
"""


def quantized(graph: rlx.Graph, images: int) -> tuple[cortexm.Network, np.ndarray[Any, Any]]:
    """The network of a graph, and codes of random images."""
    shape = [int(d) for d in graph.inputs[0].shape[1:]]
    x = RNG.uniform(-1, 1, (images, *shape)).astype(np.float32)
    found = rlx.quant.quantize_graph(graph, None, "int8", [{"x": x}])
    network = cortexm.network(found.graph, found.params)
    return network, network.codes(x)


def report(name: str, core: str, images: int, folder: Path) -> None:
    """Print the row of a model on a core."""
    network, codes = quantized(MODELS[name](), images)
    macs = sum(x.macs for x in network.layers if isinstance(x, Product))
    firmware = cortexm.export_cortexm(network, folder, target=f"cortexm:{core}")
    assert isinstance(firmware, cortexm.Firmware)
    ran, built = firmware.run(codes), firmware.build()
    wrong = int((ran.results != network.run(codes)).sum())
    print(
        f"{name} {core}: {macs} MACs, {wrong} of {ran.results.size} results differ,"
        f" {ran.instructions:.0f} instructions ({ran.instructions / macs:.2f} a MAC),"
        f" flash {built.flash}, RAM {built.ram} bytes",
        flush=True,
    )


def float_report(name: str, core: str, runs: int, folder: Path) -> None:
    """Print the row of a model in f32 on a core."""
    graph = MODELS[name]().bind({"n": 1})
    network, _ = quantized(MODELS[name](), 4)
    macs = sum(x.macs for x in network.layers if isinstance(x, Product))
    x = RNG.standard_normal((runs, *graph.inputs[0].type.static_shape)).astype(np.float32)
    firmware = cortexm.export_cortexm(graph, folder, target=f"cortexm:{core}")
    assert isinstance(firmware, cortexm.FloatFirmware)
    ran, built = firmware.run({"x": x}), firmware.build()
    want = np.stack([rlx.interpret(graph, {"x": v}, graph.param_values)[0] for v in x])
    error = np.abs(ran.outputs[0] - want).max() / max(np.abs(want).max(), 1e-30)
    print(
        f"{name} {core} in f32: {macs} MACs, error {error:.1e}, {ran.instructions:.0f} instructions"
        f" ({ran.instructions / macs:.2f} a MAC), flash {built.flash}, RAM {built.ram} bytes",
        flush=True,
    )


def peer(core: str, folder: Path) -> None:
    """Print emlearn's row: an MLP of the same sizes, in f32."""
    spec = importlib.util.find_spec("emlearn")
    if spec is None or spec.origin is None:
        raise SystemExit("--peer takes the package emlearn: pip install --no-deps emlearn")
    graph = mlp()
    network, _ = quantized(graph, 4)
    firmware = cortexm.export_cortexm(network, folder, target=f"cortexm:{core}")
    text = ""
    for name, value in graph.param_values.items():
        # Its weights are [outputs, inputs].
        numbers = ", ".join(f"{v:.6e}f" for v in np.asarray(value).T.reshape(-1).tolist())
        text += f"static const float {name}[] = {{{numbers}}};\n"
    (folder / "tables.h").write_text(text)
    (folder / "model.c").write_text(PEER)
    header = (folder / "model.h").read_text().replace("INPUT_BYTES 784", "INPUT_BYTES 3136")
    (folder / "model.h").write_text(header.replace("OUTPUT_BYTES 20", "OUTPUT_BYTES 40"))
    (folder / "codes.bin").write_bytes(RNG.standard_normal((2, 784)).astype(np.float32).tobytes())
    flags = [*preset(core).flags, *OPTIONS, "-ffunction-sections", "-fdata-sections"]
    include = Path(spec.origin).parent
    for unit in ("model", "startup", "main"):
        call("arm-none-eabi-gcc", *flags, f"-I{include}", "-c", f"{unit}.c", cwd=folder)
    objects = ["model.o", "startup.o", "main.o"]
    call("arm-none-eabi-gcc", *flags, *LINK, *objects, "-lm", "-lc", "-lgcc", "-o",
         "firmware.elf", cwd=folder)  # fmt: skip
    size = call("arm-none-eabi-size", "firmware.elf", cwd=folder).splitlines()[1].split()
    board = firmware.core.board
    text = call("qemu-system-arm", "-M", board, "-kernel", "firmware.elf", *QEMU, cwd=folder)
    ticks = int(text.split()[3]) / int(text.split()[1])
    macs = sum(x.macs for x in network.layers if isinstance(x, Product))
    print(
        f"emlearn mlp {core}: {ticks * 1e9 / firmware.core.hertz / macs:.2f}"
        f" instructions a MAC, flash {int(size[0]) + int(size[1])}, RAM"
        f" {int(size[1]) + int(size[2])} bytes with its start and example"
    )


def call(*words: Any, cwd: Path) -> str:
    """What a command prints; it ends the program if it fails."""
    done = subprocess.run([*map(str, words)], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout + done.stderr


def main() -> None:
    """Print a row for each model and core."""
    parser = argparse.ArgumentParser(description="Report on Cortex-M.", epilog=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--cores", default="m3,m4,m33,m55")
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--folder", type=Path, default=Path("build/cortexm"))
    parser.add_argument("--floats", action="store_true", help="in f32, and not in integers")
    parser.add_argument("--peer", action="store_true", help="emlearn's MLP beside them")
    args = parser.parse_args()
    for core in args.cores.split(","):
        for name in filter(None, args.models.split(",")):
            row = float_report if args.floats else report
            row(name, core, args.images, args.folder / f"{name}-{core}")
        if args.peer:
            peer(core, args.folder / f"emlearn-{core}")


if __name__ == "__main__":
    main()
