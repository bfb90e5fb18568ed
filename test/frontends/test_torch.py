"""Modules of PyTorch, where it is installed: the graph gives what the module gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.errors import (
    DTypeError,
    FaultError,
    GraphError,
    ModelError,
    RlxError,
    ShapeError,
    UnsupportedError,
)

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: it is a peer only")
F: Any = torch.nn.functional


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def mlp() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 4)
    ).eval()


def test_weights_lie_in_the_memory_of_torch() -> None:
    model = mlp()
    g = rlx.from_torch(model, torch.randn(2, 8))
    state = model.state_dict()
    assert {p.name for p in g.params} == set(state)
    for name, array in g.param_values.items():
        assert array.ctypes.data == state[name].data_ptr()
        assert not array.flags.writeable


def test_nodes_are_placed_by_module_and_outside_of_rlx() -> None:
    for node in rlx.from_torch(torch.nn.Sequential(mlp()), torch.randn(2, 8)).nodes():
        assert node.location.name in {"0.0", "0.1", "0.2", "0.3"}
        assert "/torch/nn/modules/" in node.location[0]


def test_weights_that_are_tied_are_one_param() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(10, 4)
            self.head = torch.nn.Linear(4, 10, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids: Any) -> Any:
            return self.head(self.table(ids))

    assert len(rlx.from_torch(Tied().eval(), torch.tensor([[1, 2]])).params) == 1


def test_inputs_and_outputs_keep_their_names() -> None:
    class Named(torch.nn.Module):
        def forward(self, x: Any, scale: Any = None) -> Any:
            return {"scaled": x * scale, "parts": (x + 1, x.shape[0])}

    x = torch.randn(3)
    g = rlx.from_torch(Named(), x, kwargs={"scale": torch.tensor(2.0)})
    assert [v.name for v in g.inputs] == ["x", "scale"]
    assert g.output_names == ("scaled", "parts.0", "parts.1")
    assert rlx.from_torch(Function(torch.exp), x).output_names == ("output",)
    two = rlx.from_torch(Function(lambda x: (x, -x)), x)
    assert two.output_names == ("output_0", "output_1")


def test_a_tensor_that_is_given_twice_stands_for_two_inputs() -> None:
    """So does a buffer of the module for one of its own."""

    class Apart(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("c", torch.ones(3))

        def forward(self, a: Any, b: Any, *, more: Any) -> Any:
            return a * 2 - b + more["d"] * 4 + more["e"] * 8 + self.c

    module, x = Apart(), torch.ones(3)
    g = rlx.from_torch(module, x, x, kwargs={"more": {"d": x, "e": module.c}})
    given = [np.full(3, n, np.float32) for n in (1, 5, 10, 100)]
    (found,) = rlx.interpret(g, {str(v.name): a for v, a in zip(g.inputs, given, strict=True)})
    assert found.tolist() == [2 - 5 + 40 + 800 + 1] * 3


def test_the_slope_of_sinc_at_0_is_0() -> None:
    g = rlx.from_torch(Function(lambda x: torch.sinc(x).sum()), torch.zeros(3))
    (slope,) = rlx.interpret(rlx.grad(g, ["args_0"]), {"args_0": np.float32([0, 1, 2])})
    np.testing.assert_allclose(slope, [0, -1, 0.5], atol=1e-6)


def test_dims_stay_symbolic_by_their_names() -> None:
    model = mlp()
    batch = torch.export.Dim("batch", max=64)
    g = rlx.from_torch(model, torch.randn(3, 8), dynamic_shapes={"input": {0: batch}})
    assert str(g.outputs[0].shape[0]) == "batch[0..64]"
    f = rlx.Session("cpu").compile(g)
    for n in (1, 2, 7):
        x = torch.randn(n, 8)
        found = f.run({"input": x.numpy()})["output"]
        np.testing.assert_allclose(found, model(x).detach(), rtol=1e-4, atol=1e-5)


def test_an_exported_program_names_its_dims_by_input_and_axis() -> None:
    any_size = torch.export.Dim.DYNAMIC
    program = torch.export.export(
        Function(lambda x: (x.repeat(2, 1), x.shape[0] * 2)), (torch.randn(3, 4),),
        dynamic_shapes={"args": (({0: any_size},))},
    )  # fmt: skip
    g = rlx.from_torch(program)
    assert g.symbols == {f"{g.inputs[0].name}_0"}
    found = rlx.interpret(g, {str(g.inputs[0].name): np.ones((5, 4), np.float32)})
    assert found[0].shape == (10, 4) and found[1] == 10


CONDITIONS: list[Any] = [
    lambda n: n > 4, lambda n: n >= 4, lambda n: n < 4, lambda n: n <= 4, lambda n: n == 4,
    lambda n: n != 4, lambda n: (n > 3) & (n < 6), lambda n: torch.sym_not((n < 4) | (n > 5)),
]  # fmt: skip


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_size_is_chosen_by_a_condition_on_sizes(condition: Any) -> None:
    def chosen(x: Any) -> Any:
        n = x.shape[0]
        return x.sum() + torch.ones(torch.sym_ite(condition(n), n, 2 * n))

    shapes = {"args": ({0: torch.export.Dim("n", min=1, max=9)},)}
    g = rlx.from_torch(Function(chosen), torch.ones(6), dynamic_shapes=shapes, check=False)
    for n in (2, 3, 4, 5, 7, 8):
        (found,) = rlx.interpret(g, {str(g.inputs[0].name): np.ones(n, np.float32)})
        assert found.shape == ((n if condition(n) else 2 * n),)


FUNCTIONS: list[tuple[Any, ...]] = [
    (lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True), (2, 3, 4, 8), (2, 3, 6, 8)),
    (lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), (2, 4, 3, 8), (2, 2, 3, 8)),
    (lambda x, w: F.conv2d(x, w, padding="same", groups=2), (2, 4, 7, 5), (6, 2, 3, 2)),
    (lambda x, w: F.conv_transpose2d(x, w, stride=2, output_padding=1), (1, 4, 5, 5), (4, 3, 3, 3)),
    (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), (2, 3, 9, 8)),
    (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (2, 3, 9, 8)),
    (lambda x: F.avg_pool2d(x, 1 << 20, ceil_mode=True), (2, 3, 4, 5)),
    (lambda x: F.avg_pool2d(x, (8, 3), (2, 1), (2, 1), ceil_mode=True), (2, 3, 4, 5)),
    (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), (2, 3, 8, 7)),
    (lambda x: F.group_norm(x, 2), (2, 4, 5)),
    (lambda x: F.rms_norm(x, (5,)), (2, 4, 5)),
    (lambda x: x.masked_fill(x > 0, -1).cummax(1), (3, 6)),
    (lambda x: x.topk(2, dim=0), (5, 3)),
    (lambda x, v: x.sin().index_put((torch.eye(3) > 0,), v), (3, 3, 4), (3, 4)),
    (lambda x, v: x.sin().index_put((torch.eye(3) > 0,), v), (3, 3, 4), (4,)),
    (lambda x: torch.ops.aten.index_put(x, [None, x[0] > 0], torch.tensor(2.0)), (3, 4)),
    (lambda x: x.repeat_interleave(torch.tensor([2, 0, 3]), 0), (3, 4)),
    (lambda x, r: x.repeat_interleave(torch.cat([r > 0, r <= 0]) + 1, output_size=3), (2,), (1,)),
    (lambda x: torch.where(x > 0, x, 0.0).std(dim=(0, 2), keepdim=True), (3, 4, 2)),
    (lambda x: x.unfold(1, 3, 2).flatten(1), (2, 9)),
    (lambda x: torch.view_as_complex(x).abs(), (4, 2)),
    *[(lambda x, m=m, k=k: F.interpolate(x, mode=m, **k), (2, 3, 7, 5)) for m, k in [
        ("nearest", {"size": (14, 3)}), ("nearest-exact", {"scale_factor": 1.7}),
        ("nearest", {"scale_factor": (1.7, 0.6)}), ("bilinear", {"size": (10, 4)}),
        ("bilinear", {"scale_factor": 1.3, "align_corners": True}),
        ("bicubic", {"scale_factor": 1.3}), ("bicubic", {"size": (3, 9), "antialias": True}),
        ("bilinear", {"size": (3, 3), "antialias": True}),
    ]],
    *[(lambda x, g, m=m, p=p: F.grid_sample(x, g, m, p, align_corners=False), (2, 3, 5, 6), (2, 4, 3, 2))
      for m, p in [("bilinear", "zeros"), ("nearest", "border"), ("bicubic", "reflection")]],
    (lambda x: F.unfold(x, 3, 2, 1, 2), (2, 3, 9, 8)),
    (lambda x: F.fold(x, (6, 5), (3, 2), stride=2, padding=1), (2, 12, 9)),
    (lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2), (1, 8, 3, 3)),
    (lambda x: F.adaptive_max_pool2d(x, 2, return_indices=True), (2, 3, 8, 6)),
    *[(lambda x, k=k: F.cross_entropy(x, torch.tensor([[1, 4], [2, -100], [0, 3]]), **k), (3, 5, 2))
      for k in [{}, {"label_smoothing": 0.1}, {"weight": torch.arange(1.0, 6), "reduction": "sum"},
                {"reduction": "none"}]],
    (lambda x, y: F.cross_entropy(x, y.softmax(1), label_smoothing=0.1), (3, 5, 2), (3, 5, 2)),
    (lambda x: torch.linalg.solve(x @ x.T + torch.eye(4), x[:, 0]), (4, 4)),
    (lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(4), upper=True), (2, 4, 4)),
    (lambda x: torch.linalg.eigvalsh(x @ x.mT), (2, 4, 4)),
    (lambda x: torch.fft.irfft2(torch.fft.rfft2(x, norm="ortho") * 2, s=(4, 6)), (2, 4, 6)),
    (lambda x: torch.fft.fft(x, dim=0).imag, (4, 6)),
    (lambda x: F.dropout(x, 0.5, training=False), (4,)),
    (lambda x: x.as_strided((5, 3), (1, 2), 2), (4, 6)),
    (lambda x: (2 * x).t()[1:].as_strided((2, 3), (6, 2)), (4, 6)),
    *[(lambda x, u, k=k, o=o, f=f: f(x, k, o, _random_samples=u.sigmoid(), return_indices=True), s, u)
      for f, k, o, s, u in [
        (F.fractional_max_pool2d, (2, 3), (4, 3), (2, 3, 9, 13), (2, 3, 2)),
        (F.fractional_max_pool2d, 3, (1, 5), (3, 9, 13), (1, 3, 2)),
        (F.fractional_max_pool3d, (2, 3, 2), (4, 3, 3), (2, 2, 9, 13, 7), (2, 2, 3))]],
    (lambda x: torch.as_strided_scatter(x[1:], x[:2, :2], (2, 2), (7, 2), 6), (4, 6)),
]  # fmt: skip


@pytest.mark.parametrize("case", FUNCTIONS, ids=range(len(FUNCTIONS)))
def test_functions_are_those_of_torch(case: tuple[Any, ...]) -> None:
    """The import compares the compiled graph with torch."""
    torch.manual_seed(0)
    function, *shapes = case
    rlx.from_torch(Function(function), *[torch.randn(s) for s in shapes])


@pytest.mark.parametrize(("mode", "scale"), [("bilinear", 1.7), ("bicubic", 1.3)])
def test_images_of_16_bits_are_resized_with_one_rounding(mode: str, scale: float) -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 2, 10, 11).half()

    def resized(x: Any) -> Any:
        return F.interpolate(x, scale_factor=scale, mode=mode)

    g = rlx.from_torch(Function(resized), x, check=False)
    (found,) = rlx.interpret(g, {"args_0": x.numpy()})
    wanted = resized(x.double()).numpy()
    assert np.abs(found - wanted).max() < 2.0**-11 * np.abs(wanted).max()


def test_a_number_in_a_tensor_that_no_input_decides_is_a_size() -> None:
    def halves(x: Any) -> Any:
        rows, columns = torch.tensor([[2, 3]])[0].tolist()
        return x.reshape(rows, columns), torch.ones(rows * columns)

    rlx.from_torch(Function(halves), torch.arange(6.0))


def test_numbers_of_symbolic_sizes_are_values_and_results() -> None:
    def scaled(x: Any) -> Any:
        return x * x.shape[0] ** 0.5 + x.shape[0] ** -2, x.shape[0] / 3

    g = rlx.from_torch(Function(scaled), torch.ones(4, 2), dynamic_shapes=ANY)
    y, third = rlx.interpret(g, {"args_0": np.ones((9, 2), np.float32)})
    np.testing.assert_allclose(y, np.full((9, 2), 3 + 1 / 81), rtol=1e-6)
    assert third == 3


def test_what_is_only_asserted_of_elements_is_no_part_of_a_graph() -> None:
    def checked(x: Any, sizes: Any) -> Any:
        torch._check((sizes.sum() == x.shape[0]).item())
        return x * 2

    x, sizes = torch.randn(5, 3), torch.tensor([2, 3])
    g = rlx.from_torch(Function(checked), x, sizes)
    assert len(list(g.nodes())) == 2  # the number and the product


def test_an_artifact_runs(tmp_path: Path) -> None:
    model, x = mlp(), torch.randn(2, 8)
    rlx.compile_artifact(rlx.from_torch(model, x)).save(tmp_path / "m.rlx")
    found = rlx.Session("cpu").load(tmp_path / "m.rlx").run({"input": x.numpy()})["output"]
    np.testing.assert_allclose(found, model(x).detach(), rtol=1e-4, atol=1e-5)


class Buffered(torch.nn.Module):
    """Writes a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        self.count.add_(1)
        return x + self.count


def test_dropout_takes_a_key() -> None:
    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(4, 400), torch.nn.Dropout(0.5))

        def forward(self, x: Any) -> Any:
            return (self.layers(x) ** 2).mean()

    g = rlx.from_torch(Loss(), torch.randn(2, 4), key="key")
    assert [v.name for v in g.inputs] == ["x", "key"]
    step = rlx.compile_training(g, rlx.optim.SGD(lr=0.0), key="key")
    losses = [step({"x": np.ones((2, 4), np.float32)}).loss for _ in range(3)]
    assert len(set(losses)) == 3
    encoder = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
    f = rlx.Session("cpu").compile(rlx.from_torch(encoder, torch.randn(2, 5, 8), key="key"))
    x = torch.randn(2, 5, 8)
    mean = sum(f(x, rlx.random.key_data(n))[0] for n in range(300)) / 300
    with torch.no_grad():
        expected = sum(encoder(x) for _ in range(300)) / 300
    np.testing.assert_allclose(mean, expected, atol=0.3)


def test_rows_of_a_symbolic_number_are_counted_in_the_run() -> None:
    put = Function(lambda x, mask, rows: x.index_put((mask,), rows))
    sizes = {"args": (None, None, {0: torch.export.Dim.DYNAMIC})}
    x, rows = torch.ones(5, 2), torch.randn(3, 2)
    mask = torch.tensor([True, False, True, True, False])
    g = rlx.from_torch(put, x, mask, rows, dynamic_shapes=sizes)
    run = rlx.Session("cpu").compile(g).run
    names = [str(v.name) for v in g.inputs]
    feeds = dict(zip(names, (x.numpy(), mask.numpy(), rows.numpy()), strict=True))
    np.testing.assert_array_equal(run(feeds)[0], put(x, mask, rows))
    with pytest.raises(FaultError, match=r"rows where a mask is true.*found 1, from"):
        run(feeds | {names[2]: rows[:2].numpy()})


ANY = {"args": ({0: torch.export.Dim.DYNAMIC},)}

REFUSED: list[tuple[type[RlxError], str, Any]] = [
    (GraphError, "takes a torch.nn.Module or an ExportedProgram, found 3", lambda: rlx.from_torch(3)),
    (GraphError, "has its arguments and dynamic shapes already", lambda: rlx.from_torch(
        torch.export.export(mlp(), (torch.randn(2, 8),)), torch.randn(2, 8))),
    (ModelError, "torch.export refuses the module", lambda: rlx.from_torch(mlp(), torch.randn(2, 9))),
    (ModelError, r"an example is needed: from_torch\(module, x\)", lambda: rlx.from_torch(mlp())),
    (ModelError, r"from_torch\(module, \*inputs\)", lambda: rlx.from_torch(mlp(), (torch.randn(2, 8),))),
    (ModelError, "give tensors: torch.from_numpy", lambda: rlx.from_torch(mlp(), np.ones((2, 8), "f4"))),
    (UnsupportedError, "forward writes 'count'.*no state", lambda: rlx.from_torch(Buffered(), torch.randn(2))),
    (ModelError, "returns no tensor", lambda: rlx.from_torch(Function(lambda x: None), torch.randn(2))),
    (UnsupportedError, r"not there yet: .*test_torch.py:\d+.*docs/torch.md", lambda: rlx.from_torch(
        Function(torch.special.airy_ai), torch.randn(2))),
    (UnsupportedError, "depends on the elements of a tensor", lambda: rlx.from_torch(
        Function(lambda x: torch.zeros(x.sum().long().item())), torch.ones(2))),
    (UnsupportedError, "where several masks are true; write by torch.where", lambda: rlx.from_torch(
        Function(lambda x: x.index_put((x > 0,), x[0], accumulate=True)), torch.ones(1))),
    (UnsupportedError, "of axes that are not the first; transpose it", lambda: rlx.from_torch(
        Function(lambda x: torch.ops.aten.index_put(x, [None, x[0] > 0], x[:, :1])), torch.ones(2, 2))),
    (ShapeError, "3 rows where a mask is true in more or fewer places.*found 1", lambda: rlx.from_torch(
        Function(lambda x: x.index_put((torch.arange(3) > 0,), x)), torch.ones(3))),
    (ShapeError, "output_size=4 and repeats with another sum.*found 1", lambda: rlx.from_torch(
        Function(lambda x: x.repeat_interleave(torch.tensor([1, 4]), output_size=4)), torch.ones(2))),
    (ShapeError, "negative repeats.*found 1", lambda: rlx.from_torch(
        Function(lambda x: x.repeat_interleave(torch.tensor([-1, 4]))), torch.ones(2))),
    (ModelError, "torch cannot run the module on the example.*RuntimeError.*mask", lambda: rlx.from_torch(
        Function(lambda x: x.masked_scatter(x > 0, x[:2])), torch.ones(3))),
    (UnsupportedError, "repeat_interleave.*depends on the elements", lambda: rlx.from_torch(
        Function(lambda x: x.repeat_interleave(x.int())), torch.ones(2))),
    (UnsupportedError, "its result is stored as torch.sparse_coo|element type", lambda: rlx.from_torch(
        Function(lambda x: x.to(torch.float8_e4m3fnuz)), torch.ones(2))),
    (DTypeError, r"interpolation takes floats, found u8; convert it by x.float\(\)", lambda: rlx.from_torch(
        Function(lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear")),
        torch.ones(1, 1, 4, 5, dtype=torch.uint8), check=False)),
    (UnsupportedError, "part of a memory of which the graph has not the rest.*clone", lambda: rlx.from_torch(
        Function(lambda x: x.as_strided((2, 2), (3, 1))), torch.ones(4, 6)[1:])),
    (UnsupportedError, "reads the elements of a memory as others.*clone", lambda: rlx.from_torch(
        Function(lambda x: x.view(torch.int32).as_strided((2, 2), (3, 1))), torch.ones(4, 6))),
    (UnsupportedError, "draws random numbers.*eval", lambda: rlx.from_torch(
        torch.nn.Dropout(), torch.ones(2))),
    (UnsupportedError, "generator=.*is not taken into account", lambda: rlx.from_torch(
        Function(lambda x: x + torch.rand(2, generator=torch.Generator())), torch.ones(2), key="k")),
    (UnsupportedError, "reads a number from a tensor.*leave out .item", lambda: rlx.from_torch(
        Function(lambda x: x * x.sum().item()), torch.ones(2))),
    (UnsupportedError, "no integer from symbolic dims, by a function", lambda: rlx.from_torch(
        Function(lambda x: x * (x.shape[0] / 2 % 1.5)), torch.ones(4), dynamic_shapes=ANY)),
    (ModelError, r"computed of symbolic sizes for .*size\(\)\[0\].* == 0.25; export", lambda: rlx.from_torch(
        Function(lambda x: F.layer_norm(x, (2,), eps=1 / x.shape[0])), torch.ones(4, 2), dynamic_shapes=ANY)),
    (ModelError, "torch.export refuses the module: RuntimeError: .*as_strided", lambda: rlx.from_torch(
        Function(lambda x: ((y := x * 2)[1:].as_strided((2,), (1,)).add_(1), y)[1]), torch.ones(4))),
]  # fmt: skip


@pytest.mark.parametrize("row", REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_what_cannot_be_done_is_refused(row: tuple[type[RlxError], str, Any]) -> None:
    error, match, call = row
    with pytest.raises(error, match=match):
        call()
