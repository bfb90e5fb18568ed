"""Shapes of whole ONNX models with symbolic dims: caches of decoders, images, models of one size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import ModelProto, numpy_helper

import rlx
from support.onnx_text import model

Array = np.ndarray[Any, Any]


def with_numbers(m: ModelProto, **numbers: Any) -> ModelProto:
    """A model with initialisers, of i64 unless they are arrays."""
    for name, value in numbers.items():
        a = value if isinstance(value, np.ndarray) else np.array(value, np.int64)
        m.graph.initializer.append(numpy_helper.from_array(a, name))
    return m


def random(shape: tuple[int, ...], seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


DECODER = """g (float[batch, 1, 64] x, float[batch, 4, past, 16] k, float[batch, 4, past, 16] v)
    => (float[batch, 1, 64] y, float[batch, 4, total, 16] keys, float[batch, 4, total, 16] values)
{
  heads = Reshape (x, split)
  q = Transpose <perm = [0, 2, 1, 3]> (heads)
  keys = Concat <axis = 2> (k, q)
  values = Concat <axis = 2> (v, q)
  shape = Shape (keys)
  total = Gather (shape, two)
  width = Mul (total, sixteen)
  count = Size (keys)
  rows = Div (count, width)
  long = Unsqueeze (total, zero)
  many = Unsqueeze (rows, zero)
  form = Concat <axis = 0> (many, long, last)
  kb = Reshape (keys, form)
  form2 = Concat <axis = 0> (minus, long, last)
  vb = Reshape (values, form2)
  qb = Reshape (q, flat)
  kt = Transpose <perm = [0, 2, 1]> (kb)
  scores = MatMul (qb, kt)
  weights = Softmax <axis = -1> (scores)
  o = MatMul (weights, vb)
  joined = Concat <axis = 0> (minus, one, whole)
  y = Reshape (o, joined)
}"""


def decoded(x: Array, k: Array, v: Array) -> list[Array]:
    q = x.reshape(len(x), 1, 4, 16).transpose(0, 2, 1, 3)
    keys, values = np.concatenate([k, q], 2), np.concatenate([v, q], 2)
    scores = np.exp(q @ keys.swapaxes(2, 3))
    y = scores / scores.sum(-1, keepdims=True) @ values
    return [y.reshape(len(x), 1, 64), keys, values]


def test_a_decoder_of_a_symbolic_past() -> None:
    """Sizes are divided by the length with the past: 64*batch*past + 64*batch by 16*past + 16."""
    m = with_numbers(
        model(DECODER), split=[0, 0, 4, 16], two=2, sixteen=16, zero=[0], last=[16], minus=[-1],
        flat=[-1, 1, 16], one=[1], whole=[64],
    )  # fmt: skip
    g = rlx.from_onnx(m)
    assert [str(v.type) for v in g.outputs] == [
        "batchx1x64xf32", "batchx4xpast+1x16xf32", "batchx4xpast+1x16xf32",
    ]  # fmt: skip
    f = rlx.Session("cpu").compile(g)
    for batch, past in ((2, 5), (1, 0), (3, 1)):
        cache = (batch, 4, past, 16)
        feeds = {"x": random((batch, 1, 64), 0), "k": random(cache, 1), "v": random(cache, 2)}
        for found, wanted in zip(f.run(feeds), decoded(**feeds), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=1e-5)


ONE_SIZE = [
    "g (float[batch, seq, 16] x) => (float[a, b, 16] y) { t = Transpose <perm = [1, 0, 2]> (x) y = Reshape (t, s) }",
    "g (float[batch, seq, 16] x) => (float[a, b, 16] y) { n = Shape (x) b = Slice (n, zero, one) c = Concat <axis = 0> (twelve, b, sixteen)"
    " y = Reshape (x, c) }",
    "g (float[batch, seq, 16] x) => (float[batch, seq, 16] y) { y = Add (x, positions) }",
    "g (float[batch, seq, 16] x, float[batch, 12, 1] m) => (float[batch, seq, 17] y) { y = Concat <axis = 2> (x, m) }",
    "g (float[batch, seq, 16] x) => (float[batch, seq, 16] y) { y = MatMul (mix, x) }",
]  # fmt: skip


@pytest.mark.parametrize("text", ONE_SIZE, ids=range(len(ONE_SIZE)))
def test_a_model_of_one_size_says_which_dim_to_bind(text: str) -> None:
    """An exporter wrote a length into a shape, and left the dim of the input symbolic."""
    m = with_numbers(
        model(text), s=[12, -1, 16], zero=[0], one=[1], twelve=[12], sixteen=[16],
        positions=random((12, 16), 3), mix=random((12, 12), 4),
    )  # fmt: skip
    with pytest.raises(rlx.errors.ShapeError, match=r"give from_onnx dims=\{'seq': 12\}"):
        rlx.from_onnx(m)
    rlx.from_onnx(m, dims={"seq": 12})


def test_shapes_that_fit_at_no_size_get_no_such_advice() -> None:
    m = with_numbers(model("g (float[n, 16] x) => (float[n, 16] y) { y = Reshape (x, s) }"), s=[7])
    with pytest.raises(rlx.errors.ShapeError, match="cannot become") as found:
        rlx.from_onnx(m)
    assert "dims=" not in str(found.value)


RESIZES = [
    (10, 'Resize <mode = "nearest"> (x, scales)'),
    (11, 'Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, roi, scales)'),
    (11, 'Resize <mode = "linear"> (x, roi, none, sizes)'),
    (13, 'Resize <mode = "cubic"> (x, roi, none, sizes)'),
    (18, 'Resize <mode = "linear", antialias = 1> (x, "", "", sizes)'),
    (18, 'Resize <mode = "linear", axes = [2, 3]> (x, "", scales2)'),
    (19, 'Resize <mode = "linear", axes = [3, 2], keep_aspect_ratio_policy = "not_larger"> (x, "", "", sizes2)'),
    (19, 'Resize <mode = "nearest", coordinate_transformation_mode = "half_pixel_symmetric"> (x, "", scales)'),
    (13, 'Resize <mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize"> (x, crop, scales)'),
]  # fmt: skip


@pytest.mark.parametrize(("opset", "node"), RESIZES, ids=range(len(RESIZES)))
def test_images_of_a_symbolic_batch_are_resized(opset: int, node: str) -> None:
    """Height and width change; batch and channels stay, whatever they are. The same model at known
    sizes is the judge: ONNX's own cases judge that."""
    text = f"""g (float[batch, channels, 4, 6] x) => (float y) {{ shape = Shape (x)
        front = Slice (shape, zero, two) sizes = Concat <axis = 0> (front, sizes2) y = {node} }}"""
    f32 = np.float32
    m = with_numbers(
        model(text, opset), zero=[0], two=[2], sizes2=[8, 9], scales=f32([1, 1, 2, 1.5]),
        scales2=f32([0.5, 2]), roi=f32([]), none=f32([]), crop=f32([0, 0, 0.1, 0.2, 1, 1, 0.9, 0.8]),
    )  # fmt: skip
    g = rlx.from_onnx(m)
    assert str(g.outputs[0].type).startswith("batchxchannelsx")
    x = random((2, 3, 4, 6), 5)
    known = rlx.from_onnx(m, dims={"batch": 2, "channels": 3})
    (wanted,) = rlx.interpret(known, {"x": x})
    np.testing.assert_array_equal(rlx.interpret(g, {"x": x})[0], wanted)


@pytest.mark.parametrize(
    "how", ['mode = "linear"', 'mode = "cubic"', 'mode = "linear", antialias = 1']
)
def test_an_infinite_element_counts_where_its_weight_does(how: str) -> None:
    """Nothing else is read, so that one element does not spoil an image."""
    m = with_numbers(
        model(f"g (float[1, 1, 8, 9] x) => (float y) {{ y = Resize <{how}> (x, \"\", scales) }}", 18),
        scales=np.float32([1, 1, 2, 0.75]),
    )  # fmt: skip
    g = rlx.from_onnx(m)
    one, image = np.zeros((1, 1, 8, 9), np.float32), random((1, 1, 8, 9), 7)
    one[0, 0, 3, 4], image[0, 0, 3, 4] = 1, np.inf
    weights = rlx.interpret(g, {"x": one})[0]
    assert 0 < np.count_nonzero(weights) <= 24
    found = rlx.interpret(g, {"x": image})[0]
    np.testing.assert_array_equal(np.isfinite(found), weights == 0)


KINDS = (
    "asymmetric", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
    "tf_crop_and_resize",
)  # fmt: skip


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_images_without_elements(mode: str) -> None:
    """As onnxruntime has them: of none there are none, and a small scale leaves none."""
    wanted = {(0, 2): (0, 4), (3, 2): (1, 4), (2, 0): (0, 0), (2, 2): (0, 4)}
    for kind in KINDS:
        how = f'mode = "{mode}", coordinate_transformation_mode = "{kind}"'
        for (height, width), sizes in wanted.items():
            text = f"g (float[1, 1, {height}, {width}] x) => (float y) {{ y = Resize <{how}> (x, crop, scales) }}"
            m = with_numbers(model(text, 18), scales=np.float32([1, 1, 0.4, 2]),
                crop=np.float32([0, 0, 0, 0.1, 1, 1, 1, 0.9]))  # fmt: skip
            (found,) = rlx.interpret(rlx.from_onnx(m), {"x": random((1, 1, height, width), 8)})
            assert found.shape == (1, 1, *sizes), kind


@pytest.mark.parametrize(("opset", "op"), [(9, "Upsample"), (10, "Resize")])
def test_older_versions_take_their_elements_from_below(opset: int, op: str) -> None:
    m = with_numbers(
        model(f"g (float[n, 1, 2, 3] x) => (float y) {{ y = {op} (x, scales) }}", opset),
        scales=np.float32([1, 1, 2, 1.5]),
    )
    x = random((2, 1, 2, 3), 6)
    found = rlx.interpret(rlx.from_onnx(m), {"x": x})[0]
    np.testing.assert_array_equal(found, x[:, :, [0, 0, 1, 1]][..., [0, 0, 1, 2]])


OPEN = [
    'Resize (x, "", whole)',
    'Resize <coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, "", whole)',
    'Resize <nearest_mode = "ceil"> (x, "", "", halves)',
    'Resize <nearest_mode = "round_prefer_ceil"> (x, "", "", halves)',
    'Resize <coordinate_transformation_mode = "tf_half_pixel_for_nn", nearest_mode = "floor"> (x, "", "", halves)',
    'Resize <mode = "linear"> (x, "", whole)',
    'Resize <mode = "linear", coordinate_transformation_mode = "pytorch_half_pixel"> (x, "", "", halves)',
    'Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (x, "", "", halves)',
    'Resize <mode = "cubic"> (x, "", "", halves)',
    'Conv <strides = [2, 3], pads = [1, 0, 1, 2]> (x, w)',
    'Conv <strides = [1, 1], auto_pad = "SAME_UPPER"> (x, w)',
    'Conv <strides = [2, 2], auto_pad = "SAME_UPPER"> (x, w)',
    'ConvTranspose <strides = [2, 2], output_padding = [1, 1]> (x, wt)',
    'ConvTranspose <strides = [2, 2], auto_pad = "SAME_LOWER"> (x, wt)',
    'MaxPool <kernel_shape = [3, 2], strides = [2, 2], ceil_mode = 1, pads = [1, 0, 1, 0]> (x)',
    'AveragePool <kernel_shape = [3, 2], strides = [2, 2], ceil_mode = 1, count_include_pad = 1, pads = [1, 0, 1, 0]> (x)',
    'AveragePool <kernel_shape = [2, 2], strides = [2, 1], dilations = [2, 1]> (x)',
    'LpPool <kernel_shape = [2, 2], strides = [2, 2]> (x)',
    "Slice (x, from, to, axes, steps)",
    "Slice (x, back, begin, axes, turned)",
]  # fmt: skip


@pytest.mark.parametrize("node", OPEN)
def test_images_of_symbolic_sizes(node: str) -> None:
    """Windows, resizes and strided slices along symbolic dims: the same model at known sizes is the
    judge, and ONNX's own cases judge that."""
    text = f"""g (float[batch, 3, h, w] x) => (float y) {{
        shape = Shape (x) front = Slice (shape, zero, two) sides = Slice (shape, two, four)
        more = Add (sides, one) half = Div (more, two) halves = Concat <axis = 0> (front, half)
        y = {node} }}"""
    f32 = np.float32
    m = with_numbers(
        model(text.replace("w] x", "wide] x"), 19), zero=[0], one=[1], two=[2], four=[4],
        whole=f32([1, 1, 2, 3]), w=random((4, 3, 3, 2), 1), wt=random((3, 2, 3, 2), 2),
        axes=[2, 3], steps=[2, 3], turned=[-1, -2], to=[1 << 40, -1], begin=[-(1 << 40), 0],
        back=[-1, -2],
    )  # fmt: skip
    m.graph.initializer.extend([numpy_helper.from_array(np.array([1, 0]), "from")])
    g = rlx.from_onnx(m)
    f = rlx.Session("cpu").compile(g)
    for h, wide in ((4, 6), (7, 5), (9, 8)):
        x = random((2, 3, h, wide), 5)
        known = rlx.from_onnx(m, dims={"batch": 2, "h": h, "wide": wide})
        (wanted,) = rlx.interpret(known, {"x": x})
        for (found,) in (rlx.interpret(g, {"x": x}), f.run({"x": x})):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


def test_a_range_of_a_step_counts_to_a_symbolic_size() -> None:
    m = with_numbers(
        model(
            """g (float[n] x) => (int64 up, int64 down) {
            s = Shape (x) i = Squeeze (s) up = Range (zero, i, three) down = Range (i, zero, minus) }"""
        ),
        zero=0, three=3, minus=-2,
    )  # fmt: skip
    for n in (1, 6, 7):
        up, down = rlx.interpret(rlx.from_onnx(m), {"x": np.zeros(n, np.float32)})
        assert up.tolist() == list(range(0, n, 3))
        assert down.tolist() == list(range(n, 0, -2))


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ('Resize <mode = "linear"> (x, "", taller)', "it interpolates i32; cast it to a float"),
        (
            'Resize <coordinate_transformation_mode = "middle"> (x, "", taller)',
            "its coordinates are 'middle'; there are half_pixel",
        ),
    ],
)
def test_resizes_of_symbolic_sizes_that_there_are_not(node: str, says: str) -> None:
    m = with_numbers(
        model(f"g (int32[1, 1, h, 4] x) => (int32 y) {{ y = {node} }}"),
        taller=np.float32([1, 1, 2, 1]),  # the symbolic axis alone
    )
    with pytest.raises(rlx.errors.UnsupportedError, match=says):
        rlx.from_onnx(m)


def test_a_remainder_that_sizes_decide_is_not_folded() -> None:
    """A divisor that may be 0, of which nothing is known before the sizes are."""
    m = with_numbers(
        model(
            """g (float[n] x, float[m] y) => (int64[1] r) {
            a = Shape (x) b = Shape (y) c = Sub (b, one) r = Mod (a, c) }"""
        ),
        one=[1],
    )
    (r,) = rlx.interpret(
        rlx.from_onnx(m), {"x": np.zeros(7, np.float32), "y": np.zeros(4, np.float32)}
    )
    assert r.tolist() == [1]


@pytest.mark.parametrize(
    "node",
    [
        'Resize (x, "", scales)',
        'Resize <mode = "linear", antialias = 1> (x, "", double)',
        'Resize <mode = "cubic", cubic_coeff_a = -0.5> (x, "", double)',
        'Resize <keep_aspect_ratio_policy = "not_larger"> (x, "", "", sizes)',
        'Resize <coordinate_transformation_mode = "tf_crop_and_resize"> (x, roi, double)',
    ],
)
def test_resizes_of_symbolic_sizes_that_are_not_told_apart(node: str) -> None:
    m = with_numbers(
        model(f"g (float[1, 1, h, 4] x) => (float y) {{ y = {node} }}"),
        scales=np.float32([1, 1, 1.5, 2]), double=np.float32([1, 1, 2, 2]), sizes=[1, 1, 5, 5],
        roi=np.float32([0, 0, 0.1, 0, 1, 1, 0.9, 1]),
    )  # fmt: skip
    with pytest.raises(rlx.errors.UnsupportedError, match="it resizes along the symbolic dim h"):
        rlx.from_onnx(m)


HALVED = """g (float[batch, 1, height, width] x) => (float[batch, 1, rows, columns] y)
{
  small = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x)
  large = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric",
                  nearest_mode = "floor"> (small, none, scales)
  y = Add (x, large)
}"""


def test_what_is_halved_and_doubled_takes_multiples() -> None:
    m = with_numbers(
        model(HALVED), none=np.zeros(0, np.float32), scales=np.array([1, 1, 2, 2], np.float32)
    )
    with pytest.raises(
        rlx.errors.ShapeError,
        match=r"it fits where height and width are multiples of 2: give from_onnx dims=\{'height':"
        r" 2 \* rlx.Dim\('height_by_2'\), 'width': 2 \* rlx.Dim\('width_by_2'\)\}",
    ):
        rlx.from_onnx(m)
    with pytest.raises(rlx.errors.ShapeError, match=r"width is a multiple of 2: give .*\{'width'"):
        rlx.from_onnx(m, dims={"height": 4})
    f = rlx.Session("cpu").compile(
        rlx.from_onnx(m, dims={n: 2 * rlx.Dim(n[0], 1, 9) for n in ("height", "width")})
    )
    for n, h, w in ((1, 4, 6), (2, 10, 2)):
        x = random((n, 1, h, w), h)
        padded = np.pad(x, [(0, 0), (0, 0), (1, 0), (1, 0)], constant_values=-np.inf)
        seen = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        small = np.max(seen[:, :, ::2, ::2], (-1, -2))
        found = f.run({"x": x})["y"]
        np.testing.assert_array_equal(found, x + small.repeat(2, 2).repeat(2, 3))
    with pytest.raises(rlx.errors.ShapeError):
        f.run({"x": random((1, 1, 4, 5), 0)})


def test_a_triangle_from_a_diagonal_that_is_a_size() -> None:
    """As masks of decoders have it, whose keys lie in a cache."""
    m = with_numbers(
        model("""g (float[new, total] x, float[past] cache) => (float[new, total] y)
{
  past = Shape (cache)
  k = Squeeze (past)
  y = Trilu <upper = 0> (x, k)
}"""),
    )
    f = rlx.Session("cpu").compile(rlx.from_onnx(m))
    for new, past in ((1, 4), (3, 2), (4, 0)):
        x = random((new, new + past), new)
        found = f.run({"x": x, "cache": np.zeros(past, np.float32)})["y"]
        np.testing.assert_array_equal(found, np.tril(x, past))
