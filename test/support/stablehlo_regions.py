"""Random programs of the ops of StableHLO that have regions or numbers of dims: reductions,
windows, sorting, gathers and scatters, products and convolutions, control flow."""

from __future__ import annotations

from support.stablehlo_cases import (
    ANY,
    INTS,
    REAL,
    Program,
    Rng,
    generator,
    ints,
    pick,
    shape,
    some,
    t,
)

FOLDS = ("add", "multiply", "maximum", "minimum")


def region(rng: Rng, kind: str, words: tuple[str, ...] = FOLDS) -> str:
    """A region that folds two numbers, by one op or by two."""
    of, op = t([], kind), pick(rng, words)
    more = f"  %q = stablehlo.{op} %x, %y : {of}\n"
    if rng.random() < 0.2:
        more = f"  %m = stablehlo.minimum %x, %y : {of}\n  %q = stablehlo.maximum %m, %y : {of}\n"
    return f"({{\n^bb0(%x: {of}, %y: {of}):\n{more}  stablehlo.return %q : {of}\n}})"


def number_kind(rng: Rng) -> str:
    """A type in which the order of a sum hardly matters."""
    return pick(rng, ("f32", "f64", "i8", "i32", "ui16", "i64"))


@generator("reduce")
def _reduce(rng: Rng) -> Program:
    dims, kind = shape(rng, 1, 4), number_kind(rng)
    axes = some(rng, len(dims))
    of, to = t(dims, kind), t([d for i, d in enumerate(dims) if i not in axes], kind)
    words = ("and", "or", "xor") if kind[0] in "iu" and rng.random() < 0.3 else FOLDS
    fold = region(rng, kind, words)
    return (
        f'%r = "stablehlo.reduce"(%a, %b) <{{dimensions = {ints(axes)}}}> {fold}'
        f" : ({of}, {t([], kind)}) -> {to}", f"{of} {t([], kind)}", to,
    )  # fmt: skip


@generator("map")
def _map(rng: Rng) -> Program:
    dims, kind = shape(rng, 1), number_kind(rng)
    of = t(dims, kind)
    return (
        f'%r = "stablehlo.map"(%a, %b) <{{dimensions = {ints(range(len(dims)))}}}>'
        f" {region(rng, kind)} : ({of}, {of}) -> {of}", f"{of} {of}", of,
    )  # fmt: skip


def windows(rng: Rng, dims: list[int], spread: bool = True) -> tuple[str, list[int]]:
    """Attributes of windows over some dims, and how many there are along each."""
    while True:
        sizes, strides, apart = (rng.integers(1, 4, len(dims)).tolist() for _ in range(3))
        between = rng.integers(1, 3, len(dims)).tolist() if spread else [1] * len(dims)
        if not spread:
            apart = [1] * len(dims)
        pads = rng.integers(0, 3, (len(dims), 2)).tolist()
        if rng.random() < 0.3:
            strides = [1] * len(dims)
        counts = []
        for d, size, stride, gap, wide, (low, high) in zip(
            dims, sizes, strides, apart, between, pads, strict=True
        ):
            length = low + high + (d - 1) * wide + 1
            counts.append((length - ((size - 1) * gap + 1)) // stride + 1)
        if min(counts) > 0:
            break
    more = f", base_dilations = {ints(between)}, window_dilations = {ints(apart)}" if spread else ""
    text = (
        f"window_dimensions = {ints(sizes)}, window_strides = {ints(strides)}{more},"
        f" padding = dense<{pads}> : tensor<{len(dims)}x2xi64>"
    )
    return text, counts


@generator("reduce_window")
def _reduce_window(rng: Rng) -> Program:
    dims, kind = shape(rng, 1, 3, empty=False), number_kind(rng)
    attributes, counts = windows(rng, dims)
    of, to = t(dims, kind), t(counts, kind)
    return (
        f'%r = "stablehlo.reduce_window"(%a, %b) <{{{attributes}}}> {region(rng, kind)}'
        f" : ({of}, {t([], kind)}) -> {to}", f"{of} {t([], kind)}", to,
    )  # fmt: skip


@generator("select_and_scatter")
def _select_and_scatter(rng: Rng) -> Program:
    dims, kind = shape(rng, 1, 3, empty=False), pick(rng, ("f32", "f64"))
    attributes, counts = windows(rng, dims, spread=False)
    of, part, one = t(dims, kind), t(counts, kind), t([], kind)
    word = pick(rng, ("GE", "LE", "GT"))
    # From another start the interpreter adds it once for each contribution; XLA adds it once.
    return (
        f"%c = stablehlo.constant dense<0.0> : {one}\n"
        f'%r = "stablehlo.select_and_scatter"(%a, %b, %c) <{{{attributes}}}> ({{\n'
        f"^bb0(%x: {one}, %y: {one}):\n"
        f"  %g = stablehlo.compare {word}, %x, %y : ({one}, {one}) -> tensor<i1>\n"
        f"  stablehlo.return %g : tensor<i1>\n}}, {region(rng, kind, ('add',))[1:]}"
        f" : ({of}, {part}, {one}) -> {of}", f"{of} {part}", of,
    )  # fmt: skip


@generator("sort")
def _sort(rng: Rng) -> Program:
    dims = shape(rng, 1)
    kinds = [pick(rng, ("f32", "i32", "ui8", "f64", "bf16")) for _ in range(rng.integers(1, 4))]
    types = [t(dims, kind) for kind in kinds]
    arguments = ", ".join(f"%x{i}: {t([], k)}, %y{i}: {t([], k)}" for i, k in enumerate(kinds))
    one, word = t([], kinds[0]), pick(rng, ("LT", "GT"))
    given = ", ".join(f"%{'abc'[i]}" for i in range(len(kinds)))
    results = ", ".join(f"%r{i}" for i in range(len(kinds))) if len(kinds) > 1 else "%r"
    return (
        f'{results} = "stablehlo.sort"({given}) <{{dimension = {rng.integers(len(dims))} : i64,'
        f" is_stable = true}}> ({{\n^bb0({arguments}):\n"
        f"  %g = stablehlo.compare {word}, %x0, %y0 : ({one}, {one}) -> tensor<i1>\n"
        "  stablehlo.return %g : tensor<i1>\n})"
        f" : ({', '.join(types)}) -> ({', '.join(types)})", " ".join(types), " ".join(types),
    )  # fmt: skip


# -- indices -------------------------------------------------------------------------------


def lookup(rng: Rng) -> tuple[list[int], list[int], list[int], list[int], list[int], int]:
    """An operand's shape, that of indices, the sizes of slices, the axes that are dropped, those
    that the indices say, and the axis of the vectors of indices."""
    dims = shape(rng, 1, 3, empty=False)
    axes = [int(i) for i in rng.permutation(len(dims))[: int(rng.integers(1, len(dims) + 1))]]
    sizes = [int(rng.integers(1, d + 1)) for d in dims]
    dropped = [i for i in some(rng, len(dims)) if i in axes or dims[i] == 1]
    for i in dropped:
        sizes[i] = 1
    batch = shape(rng, 0, 2, empty=False)
    at = int(rng.integers(0, len(batch) + 1))
    return dims, [*batch[:at], len(axes), *batch[at:]], sizes, dropped, axes, at


@generator("gather")
def _gather(rng: Rng) -> Program:
    dims, index, sizes, dropped, axes, at = lookup(rng)
    kind, of_index = pick(rng, ANY), pick(rng, INTS)
    batch = [d for i, d in enumerate(index) if i != at]
    window = [d for i, d in enumerate(sizes) if i not in dropped]
    rank = len(batch) + len(window)
    offsets = sorted(int(i) for i in rng.permutation(rank)[: len(window)])
    left, right = iter(window), iter(batch)
    to = t([next(left) if i in offsets else next(right) for i in range(rank)], kind)
    of, by = t(dims, kind), t(index, of_index)
    return (
        f'%r = "stablehlo.gather"(%a, %b) <{{dimension_numbers = #stablehlo.gather<offset_dims ='
        f" {offsets}, collapsed_slice_dims = {dropped}, start_index_map = {axes},"
        f" index_vector_dim = {at}>, slice_sizes = {ints(sizes)}}}> : ({of}, {by}) -> {to}",
        f"{of} {by}", to,
    )  # fmt: skip


@generator("scatter")
def _scatter(rng: Rng) -> Program:
    dims, index, sizes, dropped, axes, at = lookup(rng)
    kind, of_index = pick(rng, ("i32", "i64", "ui8", "f64")), pick(rng, INTS)
    batch = [d for i, d in enumerate(index) if i != at]
    window = [d for i, d in enumerate(sizes) if i not in dropped]
    rank = len(batch) + len(window)
    offsets = sorted(int(i) for i in rng.permutation(rank)[: len(window)])
    left, right = iter(window), iter(batch)
    part = t([next(left) if i in offsets else next(right) for i in range(rank)], kind)
    of, by = t(dims, kind), t(index, of_index)
    return (
        f'%r = "stablehlo.scatter"(%a, %b, %c) <{{scatter_dimension_numbers ='
        f" #stablehlo.scatter<update_window_dims = {offsets}, inserted_window_dims = {dropped},"
        f" scatter_dims_to_operand_dims = {axes}, index_vector_dim = {at}>}}>"
        f" {region(rng, kind)} : ({of}, {by}, {part}) -> {of}", f"{of} {by} {part}", of,
    )  # fmt: skip


# -- products ------------------------------------------------------------------------------


@generator("dot_general")
def _dot_general(rng: Rng) -> Program:
    kind = pick(rng, ("f32", "f64", "i32", "i8", "ui16", "complex<f64>"))
    shared = shape(rng, 0, 1)  # along which matrices correspond
    summed = shape(rng, 0, 2)
    sides = []
    for _ in range(2):
        own = shape(rng, 0, 1)
        kinds = [*(("b", i) for i in range(len(shared))), *(("c", i) for i in range(len(summed))),
                 *(("o", i) for i in range(len(own)))]  # fmt: skip
        order = [kinds[i] for i in rng.permutation(len(kinds))]
        sizes = {"b": shared, "c": summed, "o": own}
        dims = [sizes[k][i] for k, i in order]
        free = [sizes[k][i] for k, i in order if k == "o"]
        sides.append((dims, *([order.index((k, i)) for i in range(len(sizes[k]))] for k in "bc"),
                      free))  # fmt: skip
    (left, lb, lc, lo), (right, rb, rc, ro) = sides
    a, b, to = t(left, kind), t(right, kind), t([*shared, *lo, *ro], kind)
    return (
        f"%r = stablehlo.dot_general %a, %b, batching_dims = {lb} x {rb},"
        f" contracting_dims = {lc} x {rc} : ({a}, {b}) -> {to}", f"{a} {b}", to,
    )  # fmt: skip


@generator("convolution")
def _convolution(rng: Rng) -> Program:
    spatial, kind = int(rng.integers(1, 3)), pick(rng, ("f32", "f64"))
    groups, images = ((int(rng.integers(1, 3)), 1), (1, int(rng.integers(1, 3))))[rng.integers(2)]
    per, outputs = int(rng.integers(1, 3)), int(rng.integers(1, 3)) * groups * images
    batch, channels = images * int(rng.integers(1, 3)), per * groups
    while True:
        size, window, stride, apart, spread = (
            rng.integers(low, high, spatial).tolist()
            for low, high in ((1, 7), (1, 4), (1, 3), (1, 3), (1, 3))
        )
        pads = rng.integers(-1, 3, (spatial, 2)).tolist()
        counts = [
            (p[0] + p[1] + (d - 1) * e + 1 - ((w - 1) * g + 1)) // s + 1
            for d, w, s, g, e, p in zip(size, window, stride, apart, spread, pads, strict=True)
        ]
        if min(counts, default=1) > 0:
            break

    def layout(names: list[str], sizes: list[int]) -> tuple[list[str], list[int]]:
        order = rng.permutation(len(names))
        return [names[i] for i in order], [sizes[i] for i in order]

    places = [str(i) for i in range(spatial)]
    image, dims = layout(["b", "f", *places], [batch, channels, *size])
    kernel, weight = layout(["o", "i", *places], [outputs, per, *window])
    result, found = layout(["b", "f", *places], [batch // images, outputs, *counts])
    turned = [("false", "true")[int(i)] for i in rng.integers(0, 2, spatial)]
    numbers = f"[{', '.join(image)}]x[{', '.join(kernel)}]->[{', '.join(result)}]"
    a, b, to = t(dims, kind), t(weight, kind), t(found, kind)
    said = (
        f"stride = {stride}, pad = {pads}, lhs_dilate = {spread}, rhs_dilate = {apart},"
        f" reverse = [{', '.join(turned)}]"
    )
    return (
        f"%r = stablehlo.convolution(%a, %b) dim_numbers = {numbers},"
        f" window = {{{said}}} {{batch_group_count = {images} : i64,"
        f" feature_group_count = {groups} : i64}} : ({a}, {b}) -> {to}", f"{a} {b}", to,
    )  # fmt: skip


# -- control -------------------------------------------------------------------------------


@generator("if")
def _if(rng: Rng) -> Program:
    of = t(shape(rng), pick(rng, ANY))
    return (
        f'%r = "stablehlo.if"(%a) ({{\n  stablehlo.return %b : {of}\n}}, {{\n'
        f"  stablehlo.return %c : {of}\n}}) : (tensor<i1>) -> {of}", f"tensor<i1> {of} {of}", of,
    )  # fmt: skip


@generator("case")
def _case(rng: Rng) -> Program:
    of = t(shape(rng), pick(rng, REAL))
    branches = ", ".join(
        f"{{\n  stablehlo.return %{'bcd'[i]} : {of}\n}}" for i in range(int(rng.integers(1, 4)))
    )
    return (
        f'%r = "stablehlo.case"(%a) ({branches}) : (tensor<i32>) -> {of}',
        f"tensor<i32> {of} {of} {of}", of,
    )  # fmt: skip


@generator("while")
def _while(rng: Rng) -> Program:
    of = t(shape(rng), pick(rng, ("f32", "i32", "i8", "f64")))
    step, last, word = int(rng.integers(1, 4)), int(rng.integers(0, 12)), pick(rng, ("LT", "LE"))
    one = "tensor<i32>"
    return (
        f"%s = stablehlo.constant dense<{step}> : {one}\n"
        f"%l = stablehlo.constant dense<{last}> : {one}\n"
        f"%n, %r = stablehlo.while(%i = %a, %x = %b) : {one}, {of}\n cond {{\n"
        f"  %g = stablehlo.compare {word}, %i, %l : ({one}, {one}) -> tensor<i1>\n"
        "  stablehlo.return %g : tensor<i1>\n } do {\n"
        f"  %j = stablehlo.add %i, %s : {one}\n  %y = stablehlo.add %x, %b : {of}\n"
        f"  stablehlo.return %j, %y : {one}, {of}\n }}", f"{one} {of}", of,
    )  # fmt: skip
