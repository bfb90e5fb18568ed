"""Feed-forward networks of a layer: one, or those that a router chooses for each row."""

from __future__ import annotations

import numpy as np

from rlx.ir.value import Value
from rlx.llm.graph_weights import GraphWeights
from rlx.llm.share import Share
from rlx.types import f32

__all__ = ["FeedForward"]


class FeedForward(GraphWeights):
    """The networks of a decoder. A layer whose file has a router or experts has both."""

    share: Share

    def feed_forward(self, i: int, x: Value) -> Value:
        """What a layer's network, or those of its experts, make of the rows."""
        c, name = self.config, f"blk.{i}"
        key = f"{name}.ffn_up_shexp.weight"
        if not c.experts and c.shared is not False and key in self.weights:
            return self.network(name, x, self.stored(key).shape[0], "_shexp")
        own = (f"{name}.{part}.weight" for part in ("ffn_gate_inp", "ffn_down_exps"))
        if not c.experts or not any(part in self.weights for part in own):
            return self.network(name, x, c.inner)
        y = self.experts(name, x)
        if not self.has("ffn_up_shexp.weight", c.shared):
            return y
        z = self.network(name, x, self.stored(key).shape[0], "_shexp")
        if c.family.shared_gate:
            gate = self.vector(f"{name}.ffn_gate_inp_shexp.weight", c.hidden)
            z = z * (x @ gate.reshape([c.hidden, 1])).sigmoid()
        return y + z

    def network(self, name: str, x: Value, inner: int, end: str = "") -> Value:
        """One network of so many units; ``end`` is that of its weights' names."""
        c, units = self.config, self.share.units(inner)
        gated = not c.family.ungated
        parts = [
            self.linear(x, f"{name}.ffn_{n}{end}", (inner, c.hidden), rows=units)
            for n in (("gate", "up") if gated else ("up",))
        ]
        y = self.activated(parts[0])
        return self.linear(
            y * parts[1] if gated else y, f"{name}.ffn_down{end}", (c.hidden, inner),
            columns=units, total=self.share.total,
        )  # fmt: skip

    def experts(self, name: str, x: Value) -> Value:
        """The networks that a router chooses for each row, and their sum by its weights."""
        c, rows, used = self.config, x.shape[0], self.config.experts_used
        shares, chosen = self.route(name, x)
        chosen = chosen.reshape([rows * used])
        narrow = c.family.narrowed and self.has("ffn_latent_down.weight", None)
        size = self.stored(f"{name}.ffn_latent_down.weight").shape[0] if narrow else c.hidden
        if narrow:
            x = self.linear(x, f"{name}.ffn_latent_down", (size, c.hidden))
        each = x.reshape([rows, 1, size]).expand([rows, used, size]).reshape([rows * used, size])
        weighs = shares.reshape([rows * used, 1])
        if c.family.expert_early:
            each = each * weighs
        gated = not c.family.ungated
        parts = [
            self.grouped(each, f"{name}.ffn_{n}_exps", (c.expert_inner, size), 1, chosen)
            for n in (("gate", "up") if gated else ("up",))
        ]
        if c.family.clamped:
            y = self.clamped(*parts)
        else:
            y = self.activated(parts[0])
            y = y * parts[1] if gated else y
        y = self.grouped(y, f"{name}.ffn_down_exps", (size, c.expert_inner), 2, chosen)
        y = y if c.family.expert_early else y * weighs
        y = self.share.total(y.reshape([rows, used, size]).sum(axes=1))
        if narrow:
            y = self.linear(y, f"{name}.ffn_latent_up", (c.hidden, size))
        if not self.has_bias(f"{name}.ffn_down_exps"):
            return y
        bias = self.expert_bias(f"{name}.ffn_down_exps", range(c.hidden)).gather(chosen) * weighs
        return y + bias.reshape([rows, used, c.hidden]).sum(axes=1)

    def route(self, name: str, x: Value) -> tuple[Value, Value]:
        """How much each expert of a row counts, and which ones these are: ``[rows, used]``."""
        c = self.config
        logits = self.linear(x, f"{name}.ffn_gate_inp", (c.experts, c.hidden))
        sigmoid = c.family.router == "sigmoid"
        scores = logits.sigmoid() if sigmoid else logits.softmax(axis=-1)
        choice = scores
        if self.has_bias(f"{name}.exp_probs_b"):
            choice = choice + self.vector(f"{name}.exp_probs_b.bias", c.experts)
        if c.expert_groups > 1:
            choice = self.best_groups(choice)
        shares, chosen = choice.topk(c.experts_used, axis=-1)
        if choice is not scores:
            shares = scores.take_along_axis(chosen)
        if c.expert_norm:
            shares = shares / shares.sum(axes=-1, keep_dim=True)
        return shares if c.expert_scale == 1.0 else shares * c.expert_scale, chosen

    def best_groups(self, choice: Value) -> Value:
        """Scores ``[rows, experts]`` with those of the groups that are not used at -inf."""
        c, rows, groups = self.config, choice.shape[0], self.config.expert_groups
        each = choice.reshape([rows, groups, c.experts // groups])
        best = each.topk(min(c.family.group_best, c.experts // groups), axis=-1)[0].sum(axes=-1)
        used = best.topk(c.groups_used, axis=-1)[1].one_hot(groups).sum(axes=1)
        kept = used.reshape([rows, groups, 1]).expand(each.shape) > 0
        return kept.where(each, float("-inf")).reshape([rows, c.experts])

    def grouped(
        self, x: Value, name: str, shape: tuple[int, int], cut: int, chosen: Value
    ) -> Value:
        """Each row by the matrix of its expert, which is cut along a dim."""
        whole = (self.config.experts, *shape)
        units = self.share.units(self.config.expert_inner)
        w, scheme = self.matrix(f"{name}.weight", whole, cut, units)
        w = w.dequantize_blocks(scheme) if scheme else w.cast(to=f32)
        y = x.grouped_matmul(w.transpose(0, 2, 1), chosen)
        if cut == 2 or not self.has_bias(name):
            return y
        return y + self.expert_bias(name, units).gather(chosen)

    def expert_bias(self, name: str, part: range) -> Value:
        """What is added behind the matrices of all experts, ``[experts, part]``."""
        key = f"{name}.bias"
        if key in self.used:
            return self.used[key]
        size = self.config.hidden if "_down_" in name else self.config.expert_inner
        found = self.tensor(key, (self.config.experts, size)).dequantize()
        return self.param(key, np.ascontiguousarray(found[:, part.start : part.stop]))

    def clamped(self, gate: Value, up: Value) -> Value:
        """Units of gpt-oss: ``gate * sigmoid(slope * gate) * (up + 1)``, with gate at most and up
        within a limit."""
        c = self.config
        gate, up = gate.minimum(c.unit_limit), up.clip(-c.unit_limit, c.unit_limit)
        return gate * (gate * c.unit_slope).sigmoid() * (up + 1.0)

    def activated(self, x: Value) -> Value:
        """The family's activation."""
        name = self.config.activation
        return x.relu().square() if name == "relu2" else getattr(x, name)()
