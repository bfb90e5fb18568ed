"""A network as SystemVerilog: an engine a layer, memories between them, and files of weights.

An engine of a product reads LANES elements and weights a cycle, adds their products, and
requantizes each sum in a pipeline; pools and argmax read an element a cycle. Engines run one after
another: a layer starts when the one before is done. All numbers are of the graph: nothing is a
parameter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from rlx.targets.integer.network import ArgMax, Layer, MaxPool, Network, Product

__all__ = ["LATENCY", "cycles_of", "memory_files", "verilog"]

Array = np.ndarray[Any, Any]
Lanes = Mapping[str, int]

LATENCY: dict[type[Layer], int] = {Product: 11, MaxPool: 4, ArgMax: 4}
"""Cycles from a start to a done beside one a step of the loops."""


def _bits(n: int) -> int:
    """To count to n - 1."""
    return max(int(n - 1).bit_length(), 1)


def _signed(n: int) -> str:
    return f"-{-n}" if n < 0 else str(n)


def steps(layer: Layer, lanes: int) -> int:
    """Of a layer's loops."""
    if isinstance(layer, Product):
        return prod(layer.size[:2]) * layer.weights.size // lanes
    if isinstance(layer, MaxPool):
        return prod(layer.size) * prod(layer.taps)
    return prod(layer.source)


def cycles_of(network: Network, lanes: Lanes) -> int:
    """From the cycle of the start to that in which done is seen."""
    return sum(steps(x, lanes.get(x.name, 1)) + LATENCY[type(x)] for x in network.layers)


# -- parts ----------------------------------------------------------------------------------------


def _counters(loops: Sequence[tuple[str, int]]) -> tuple[str, str]:
    """Declarations of nested counters, the innermost last, and how they step; they end by
    ``running <= 0``."""
    names = "".join(f"  reg [{_bits(n) - 1}:0] {name};\n" for name, n in loops)
    names += "".join(f"  wire last_{name} = {name} == {n - 1};\n" for name, n in loops)
    body = "running <= 0;"
    for name, _ in loops:
        body = f"if (!last_{name}) {name} <= {name} + 1; else begin {name} <= 0; {body} end"
    # The outermost was wrapped first, so that it is innermost in the text.
    reset = " ".join(f"{name} <= 0;" for name, _ in loops)
    step = f"""    if (start) begin running <= 1; {reset} end
    else if (running) begin {body} end
"""
    return names, step


def _place(rows: str, cols: str, width: int, words: int, word: str) -> str:
    at = f"({rows} * {width} + {cols})" if width > 1 else rows
    at = f"({at} * {words} + {word})" if words > 1 else at
    return at


def _head(layer: Layer, lanes: int, word: int) -> str:
    xa, ya = _bits(prod(layer.source) // lanes), _bits(prod(layer.size))
    return f"""
module {layer.name} (
  input wire clk, input wire start, output reg done,
  output reg [{xa - 1}:0] x_addr, input wire [{word * lanes - 1}:0] x_data,
  output reg y_write, output reg [{ya - 1}:0] y_addr,
  output reg signed [{layer.bits - 1}:0] y_data);
  initial begin done = 0; y_write = 0; end
  reg running = 0;
"""


def _product(layer: Product, lanes: int) -> str:
    n, kh, kw, channels = layer.weights.shape
    words = channels // lanes
    (height, width, _), (sy, sx), (py, px) = layer.source, layer.stride, layer.pad
    loops = [("oy", layer.size[0]), ("ox", layer.size[1]), ("n", n), ("ky", kh), ("kx", kw),
             ("c", words)]  # fmt: skip
    names, step = _counters(loops)
    wb, total, k = layer.weight_bits, layer.sum_bits, layer.multiplier_bits
    span = _bits(max(height, width) + max(kh, kw) + max(py, px)) + 2
    return f"""{_head(layer, lanes, 8)}{names}
  // Weights, {lanes} of {wb} bits a word; biases; multipliers of {k} bits.
  reg [{wb * lanes - 1}:0] weights [0:{n * kh * kw * words - 1}];
  reg signed [{total - 1}:0] bias [0:{n - 1}];
  reg [{k - 1}:0] multiplier [0:{n - 1}];
  initial begin
    $readmemh("{layer.name}_weights.mem", weights);
    $readmemh("{layer.name}_bias.mem", bias);
    $readmemh("{layer.name}_multiplier.mem", multiplier);
  end

  // 1: addresses. 2: words. 3: products. 4: their sum. 5: the sum of all.
  wire signed [{span - 1}:0] iy = $signed({{1'b0, oy}}) * {sy} + $signed({{1'b0, ky}}) - {py};
  wire signed [{span - 1}:0] ix = $signed({{1'b0, ox}}) * {sx} + $signed({{1'b0, kx}}) - {px};
  wire first = ky == 0 && kx == 0 && c == 0;
  wire last = last_ky && last_kx && last_c;
  reg [{_bits(n * kh * kw * words) - 1}:0] w_addr;
  reg v1 = 0, v2 = 0, v3 = 0, v4 = 0, v5 = 0;
  reg first1, first2, first3, first4, last1, last2, last3, last4, pad1, pad2;
  reg [{_bits(n) - 1}:0] n1, n2, n3, n4;
  reg [{wb * lanes - 1}:0] w2;
  reg signed [{wb + 7}:0] product3 [0:{lanes - 1}];
  reg signed [{total - 1}:0] tree, tree4, bias4, sum5;
  reg [{k - 1}:0] multiplier5;
  integer i;
  always @(posedge clk) begin
{step}    v1 <= running; first1 <= first; last1 <= last; n1 <= n;
    pad1 <= iy < 0 || iy >= {height} || ix < 0 || ix >= {width};
    x_addr <= {_place("iy", "ix", width, words, "$signed({1'b0, c})")};
    w_addr <= first && n == 0 ? 0 : w_addr + 1;
    v2 <= v1; first2 <= first1; last2 <= last1; n2 <= n1; pad2 <= pad1;
    w2 <= weights[w_addr];
    v3 <= v2; first3 <= first2; last3 <= last2; n3 <= n2;
    for (i = 0; i < {lanes}; i = i + 1)
      product3[i] <= pad2 ? 0 : $signed(w2[{wb} * i +: {wb}]) * $signed(x_data[8 * i +: 8]);
    tree = 0;
    for (i = 0; i < {lanes}; i = i + 1) tree = tree + product3[i];
    v4 <= v3; first4 <= first3; last4 <= last3; n4 <= n3;
    tree4 <= tree; bias4 <= bias[n3];
    v5 <= v4 && last4; multiplier5 <= multiplier[n4];
    if (v4) sum5 <= tree4 + (first4 ? bias4 : sum5);
  end

{_requantization(layer)}endmodule
"""


def _requantization(layer: Product) -> str:
    """The stages behind the sum: it is ``requantize_q31`` with a multiplier of fewer bits."""
    total, k = layer.sum_bits, layer.multiplier_bits
    ends, wide = 1 << (k - 1), total + k
    low = _signed(layer.low)
    half = ((1 << layer.shift) - 1) >> 1
    up = f"(h8 & {total + 2}'sd{(1 << layer.shift) - 1}) > {half} + h8[{total + 1}]"
    return f"""  // 6: times the multiplier. 7, 8: rounded to {k} bits less. 9: a shift. 10: ends.
  reg v6 = 0, v7 = 0, v8 = 0, v9 = 0;
  reg signed [{wide}:0] p6, p7;
  reg signed [{total + 1}:0] h8, r9;
  wire signed [{wide}:0] more = p7[{wide}] ? {(1 << k) - 1} : 0;
  wire signed [{wide}:0] toward = p7 + more;
  wire up = {up if layer.shift else "1'b0"};
  wire signed [{total + 1}:0] shifted = h8 >>> {layer.shift};
  always @(posedge clk) begin
    v6 <= v5; p6 <= sum5 * $signed({{1'b0, multiplier5}});
    v7 <= v6; p7 <= p6[{wide}] ? p6 - {wide + 1}'sd{ends - 1} : p6 + {wide + 1}'sd{ends};
    v8 <= v7; h8 <= toward >>> {k};
    v9 <= v8; r9 <= shifted + $signed({{1'b0, up}});
    y_write <= v9;
    y_data <= r9 > {layer.high} ? {layer.high} : r9 < {low} ? {low} : r9;
    if (start) y_addr <= {prod(layer.size) - 1};
    else if (v9) y_addr <= y_addr == {prod(layer.size) - 1} ? 0 : y_addr + 1;
    done <= y_write && y_addr == {prod(layer.size) - 1};
  end
"""


def _pool(layer: MaxPool) -> str:
    (_, width, channels), (sy, sx) = layer.source, layer.stride
    loops = [("oy", layer.size[0]), ("ox", layer.size[1]), ("c", channels),
             ("ky", layer.taps[0]), ("kx", layer.taps[1])]  # fmt: skip
    names, step = _counters(loops)
    count = prod(layer.size)
    at = _place(f"(oy * {sy} + ky)", f"(ox * {sx} + kx)", width, channels, "c")
    return f"""{_head(layer, 1, layer.bits)}{names}
  reg v1 = 0, v2 = 0, v3 = 0, first1, first2, last1, last2, last3;
  reg signed [{layer.bits - 1}:0] most;
  always @(posedge clk) begin
{step}    v1 <= running; first1 <= ky == 0 && kx == 0; last1 <= last_ky && last_kx;
    x_addr <= {at};
    v2 <= v1; first2 <= first1; last2 <= last1;
    v3 <= v2 && last2;
    if (v2) most <= first2 || $signed(x_data) > most ? $signed(x_data) : most;
    y_write <= v3; y_data <= most;
    if (start) y_addr <= {count - 1};
    else if (v3) y_addr <= y_addr == {count - 1} ? 0 : y_addr + 1;
    done <= y_write && y_addr == {count - 1};
  end
endmodule
"""


def _argmax(layer: ArgMax, word: int) -> str:
    names, step = _counters([("c", prod(layer.source))])
    return f"""{_head(layer, 1, word)}{names}
  reg v1 = 0, v2 = 0, v3 = 0, first1, first2, last1, last2;
  reg [15:0] c1, c2, place;
  reg signed [{word - 1}:0] most;
  always @(posedge clk) begin
{step}    v1 <= running; first1 <= c == 0; last1 <= last_c; c1 <= c; x_addr <= c;
    v2 <= v1; first2 <= first1; last2 <= last1; c2 <= c1;
    v3 <= v2 && last2;
    if (v2 && (first2 || $signed(x_data) > most)) begin most <= $signed(x_data); place <= c2; end
    y_write <= v3; y_data <= place; y_addr <= 0;
    done <= y_write;
  end
endmodule
"""


def _top(network: Network, lanes: Lanes) -> str:
    first, last = network.layers[0], network.layers[-1]
    inputs, results = prod(first.source), prod(last.size)
    text = f"""
// One image: write its codes (rows, columns, channels), start, wait for done, read the results.
module top (
  input wire clk, input wire start, output wire done,
  input wire in_write, input wire [{_bits(inputs) - 1}:0] in_addr, input wire [7:0] in_data,
  input wire [{_bits(results) - 1}:0] out_addr, output reg signed [{last.bits - 1}:0] out_data);
"""
    write, address, data, word, start = "in_write", "in_addr", "in_data", 8, "start"
    for layer in network.layers:
        n, own = layer.name, lanes.get(layer.name, 1)
        depth, shift = prod(layer.source) // own, _bits(own) if own > 1 else 0
        bits = _bits(prod(layer.source))
        place = (
            f"{address}[{bits - 1}:{shift}]" if shift and depth > 1 else "0" if shift else address
        )
        part = f"[{word} * {address}[{shift - 1}:0] +: {word}]" if shift else ""
        text += f"""
  reg [{word * own - 1}:0] {n}_memory [0:{depth - 1}];
  reg [{word * own - 1}:0] {n}_x;
  wire {n}_done, {n}_write;
  wire [{_bits(depth) - 1}:0] {n}_at;
  wire [{_bits(prod(layer.size)) - 1}:0] {n}_to;
  wire [{layer.bits - 1}:0] {n}_y;
  always @(posedge clk) begin
    if ({write}) {n}_memory[{place}]{part} <= {data};
    {n}_x <= {n}_memory[{n}_at];
  end
  {n} {n}_engine (.clk(clk), .start({start}), .done({n}_done), .x_addr({n}_at), .x_data({n}_x),
    .y_write({n}_write), .y_addr({n}_to), .y_data({n}_y));
"""
        write, address, data, word = f"{n}_write", f"{n}_to", f"{n}_y", layer.bits
        start = f"{n}_done"
    return f"""{text}
  reg signed [{last.bits - 1}:0] results [0:{results - 1}];
  always @(posedge clk) begin
    if ({write}) results[{address}] <= {data};
    out_data <= results[out_addr];
  end
  assign done = {start};
endmodule
"""


def verilog(network: Network, lanes: Lanes) -> str:
    """The text of all modules; ``top`` is the outermost."""
    text = f"// {network.name}: {len(network.layers)} layers of integers.\n`default_nettype none\n"
    word = 8
    for layer in network.layers:
        if isinstance(layer, Product):
            text += _product(layer, lanes.get(layer.name, 1))
        elif isinstance(layer, MaxPool):
            text += _pool(layer)
        else:
            assert isinstance(layer, ArgMax), "a network for FPGAs has no means"
            text += _argmax(layer, word)
        word = layer.bits
    return text + _top(network, lanes)


# -- memories -------------------------------------------------------------------------------------


def memory_files(network: Network, lanes: Lanes) -> dict[str, str]:
    """The text of each file that the modules read, by its name: a word in hexadecimal a line."""
    out: dict[str, str] = {}
    for layer in network.layers:
        if not isinstance(layer, Product):
            continue
        own, bits = lanes.get(layer.name, 1), layer.weight_bits
        words = layer.weights.astype(np.int64).reshape(-1, own) & ((1 << bits) - 1)
        packed = [sum(int(w) << (bits * i) for i, w in enumerate(row)) for row in words]
        mask = (1 << layer.sum_bits) - 1
        for kind, numbers, width in (
            ("weights", packed, bits * own),
            ("bias", [int(b) & mask for b in layer.bias], layer.sum_bits),
            ("multiplier", [int(m) for m in layer.multiplier], layer.multiplier_bits),
        ):
            digits = -(-width // 4)
            lines = "".join(f"{n:0{digits}x}\n" for n in numbers)
            out[f"{layer.name}_{kind}.mem"] = lines
    return out
