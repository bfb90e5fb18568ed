"""Matrix products with epilogues, against the peers that are installed, in turn in one process.

    python bench/kernels/gemm.py --threads 2 --rounds 11

Prints GFLOP/s of RLX and, for each peer, its time over RLX's time, each in its best round: above 1,
RLX is faster. torch and OpenVINO compute the same region, with constant weights; numpy computes
the bare product.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Run = Callable[[], object]

SHAPES = {
    "minilm": (
        (384, 1152, "bias"),
        (384, 384, "residual"),
        (384, 1536, "gelu"),
        (1536, 384, "residual"),
    ),
    "base": (
        (768, 2304, "bias"),
        (768, 768, "residual"),
        (768, 3072, "gelu"),
        (3072, 768, "residual"),
    ),
    "large": ((4096, 4096, "none"),),
}
"""(K, N, epilogue) of the products of a layer."""


@dataclass(frozen=True)
class Case:
    m: int
    k: int
    n: int
    epilogue: str
    a: Array
    b: Array
    bias: Array
    residual: Array

    @staticmethod
    def make(m: int, k: int, n: int, epilogue: str) -> Case:
        rng = np.random.default_rng(0)
        a, b, bias, residual = (
            rng.standard_normal(s, np.float32) for s in ((m, k), (k, n), (n,), (m, n))
        )
        return Case(m, k, n, epilogue, a, b / np.float32(k**0.5), bias, residual)


def rlx_runner(case: Case) -> tuple[Run, Array]:
    """The kernel on packed weights, run by the native thread pool."""
    from rlx.kernels import contraction, pack
    from rlx.kernels.program import Program, Step
    from rlx.runtime import _native
    from rlx.targets.cpu.emit import compile_kernels
    from rlx.targets.cpu.features import detect
    from rlx.targets.cpu.target import kernel_target
    from rlx.types import f32

    add = Step("mir.add", (0, 1), (f32, f32), f32)
    programs = {
        "none": ((), Program((f32,), (), (0,))),
        "bias": (("row",), Program((f32, f32), (add,), (2,))),
        "gelu": (
            ("row",),
            Program((f32, f32), (add, Step("mir.gelu", (2,), (f32,), f32)), (3,)),
        ),
        "residual": (
            ("row", "full"),
            Program((f32,) * 3, (add, Step("mir.add", (3, 2), (f32, f32), f32)), (4,)),
        ),
    }
    kinds, program = programs[case.epilogue]
    operands = [case.bias, case.residual][: len(kinds)]
    features = detect()
    target = kernel_target(features)
    config = contraction.ContractionConfig(f32, f32, program, kinds)
    pack_config = pack.PackConfig(f32, adjacent_columns=True)
    kernels = [contraction.emit("product", config, target), pack.emit("pack", pack_config, target)]
    code = _native.Object(compile_kernels(kernels, features))
    m, n, k = case.m, case.n, case.k
    packing = pack.launch(pack_config, target, k=k, n=n, row_stride=n)
    strides = [(0, 0), (n, 0)][: len(kinds)]
    launch = contraction.launch(config, target, m=m, n=n, k=k, operands=strides)

    def step(name: str, of: Any, buffers: list[int]) -> tuple[Any, ...]:
        refs = tuple((base, 0) for base in buffers)
        return ("launch", code.symbol(name), of.range, of.grain, of.scratch, refs, of.sizes)

    first, packed = _native.BASE_FIRST_PARAM, _native.BASE_PACKED
    ins = [case.a, *operands]
    bases = [first + 1 + i for i in range(len(ins) + 1)]
    weights = _native.Weights(
        objects=[code],
        params=[("b", "f32", case.b.shape)],
        packed_bytes=pack.packed_bytes(target, f32, k, n),
        prologue=[(step("pack", packing, [first, packed]), [0])],
    )
    weights.set_param(0, case.b)
    product = _native.Program(
        weights=weights,
        objects=[code],
        inputs=[(f"in{i}", "f32", x.shape) for i, x in enumerate(ins)],
        outputs=[("c", "f32", (m, n))],
        main=[step("product", launch, [bases[0], packed, *bases[1:]])],
    )
    c = np.empty((m, n), np.float32)
    return lambda: product.run_into(ins, [c]), c


def torch_runner(case: Case, threads: int) -> Run:
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    a, b, bias, residual = (
        torch.from_numpy(x) for x in (case.a, case.b.T.copy(), case.bias, case.residual)
    )
    runs: dict[str, Run] = {
        "none": lambda: F.linear(a, b),
        "bias": lambda: F.linear(a, b, bias),
        "gelu": lambda: F.gelu(F.linear(a, b, bias)),
        "residual": lambda: F.linear(a, b, bias).add_(residual),
    }
    return runs[case.epilogue]


def openvino_runner(case: Case, threads: int) -> Run:
    import openvino as ov
    import openvino.opset13 as ops

    a = ops.parameter(case.a.shape, np.float32)
    inputs, tensors = [a], [case.a]
    y = ops.matmul(a, ops.constant(case.b.T.copy()), False, True)
    if case.epilogue != "none":
        y = ops.add(y, ops.constant(case.bias[None]))
    if case.epilogue == "gelu":
        y = ops.gelu(y, "erf")
    if case.epilogue == "residual":
        inputs.append(ops.parameter(case.residual.shape, np.float32))
        tensors.append(case.residual)
        y = ops.add(y, inputs[1])
    options = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = ov.Core().compile_model(ov.Model([y], inputs), "CPU", options).create_infer_request()
    for i, x in enumerate(tensors):
        request.set_input_tensor(i, ov.Tensor(x, shared_memory=True))
    return request.infer


def numpy_runner(case: Case, threads: int) -> Run:
    out = np.empty((case.m, case.n), np.float32)
    return lambda: np.matmul(case.a, case.b, out=out)


PEERS: dict[str, Callable[[Case, int], Run]] = {
    "torch": torch_runner,
    "openvino": openvino_runner,
    "numpy (bare)": numpy_runner,
}


def measure(runs: dict[str, Run], seconds: float, rounds: int) -> dict[str, list[float]]:
    """Seconds a call, per round, the runs in turn."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            run()
            count, spent, start = 0, 0.0, time.perf_counter()
            while count == 0 or spent < seconds:
                run()
                count += 1
                spent = time.perf_counter() - start
            times[name].append(spent / count)
    return times


def cases(models: list[str], rows: list[int]) -> Iterator[Case]:
    for model in models:
        for m in rows:
            for k, n, epilogue in SHAPES[model]:
                yield Case.make(m, k, n, epilogue)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.004, help="a run's share of a round")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 37, 128, 1024])
    parser.add_argument("--models", nargs="+", choices=list(SHAPES), default=["minilm"])
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    args = parser.parse_args(argv)
    # Read when the libraries are loaded, which is after this.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RLX_NUM_THREADS"):
        os.environ.setdefault(variable, str(args.threads))
    print(f"{'M x K x N':>26}  {'RLX GF/s':>8}  " + "  ".join(f"{p:>12}" for p in args.peers))
    for case in cases(args.models, args.rows):
        ours, _ = rlx_runner(case)
        runs = {"rlx": ours} | {p: PEERS[p](case, args.threads) for p in args.peers}
        times = measure(runs, args.seconds, args.rounds)
        best = {name: min(found) for name, found in times.items()}
        speed = 2e-9 * case.m * case.k * case.n / best["rlx"]
        ratios = [best[p] / best["rlx"] for p in args.peers]
        shape = f"{case.m} x {case.k} x {case.n} {case.epilogue}"
        print(f"{shape:>26}  {speed:8.1f}  " + "  ".join(f"{r:12.2f}" for r in ratios), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
