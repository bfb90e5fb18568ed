"""``torch.compile(model, backend="rlx")``, where torch is installed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

import pytest

from rlx.errors import UnsupportedError

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: it is a peer only")

from rlx.frontends.torch import backend as ours  # noqa: E402 -- it needs torch
from support.torch_programs import Program, difference  # noqa: E402

F: Any = torch.nn.functional


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """No test sees what dynamo has compiled for another."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def net() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1, bias=False), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
        torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(32, 16), torch.nn.LayerNorm(16),
        torch.nn.GELU(), torch.nn.Linear(16, 5),
    )  # fmt: skip


def compiled(model: Any, **how: Any) -> Any:
    return torch.compile(model, backend=ours.backend, fullgraph=True, **how)


def test_it_is_registered_by_its_name() -> None:
    found = [e for e in entry_points(group="torch_dynamo_backends") if e.name == "rlx"]
    assert found and found[0].load() is ours.backend


def test_weights_are_held_and_set_anew_when_they_change() -> None:
    model = net().eval()
    run = compiled(model)
    x = torch.randn(2, 3, 4, 4)
    with torch.no_grad():
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
        model[0].weight.mul_(2)
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
        model[0].weight = torch.nn.Parameter(torch.randn(8, 3, 3, 3))
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
        model[5].weight.data = torch.randn(16, 32)
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)


def test_a_model_is_trained_as_by_torch() -> None:
    ours_, theirs = net(), net()
    run = compiled(ours_)
    optimizers = [torch.optim.AdamW(m.parameters(), 1e-2) for m in (ours_, theirs)]
    for step in range(6):
        x, y = torch.randn(4, 3, 4, 4), torch.randint(0, 5, (4,))
        losses = [F.cross_entropy(f(x), y) for f in (run, theirs)]
        torch.testing.assert_close(losses[0], losses[1], rtol=1e-3, atol=1e-5, msg=str(step))
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for a, b in zip(ours_.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_sizes_change_without_a_new_graph() -> None:
    model = copy.deepcopy(net()[5:]).eval()
    graphs: list[Any] = []

    def counting(module: Any, inputs: Any) -> Any:
        graphs.append(module)
        return ours.backend(module, inputs)

    run = torch.compile(model, backend=counting, dynamic=True, fullgraph=True)
    with torch.no_grad():
        run(torch.randn(2, 32))
        once = len(graphs)  # torch may trace the first call twice
        for n in (3, 7, 5):
            x = torch.randn(n, 32)
            torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
    assert len(graphs) == once


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_norms_of_batches_of_any_size_are_trained(kind: str) -> None:
    torch.manual_seed(0)
    ours_ = torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.GELU()).to(getattr(torch, kind))
    theirs = copy.deepcopy(ours_)
    run = compiled(ours_)
    rtol, atol = (1e-4, 1e-4) if kind == "float32" else (2e-2, 0.1)
    for n in (4, 5, 6):
        x = torch.randn(n, 3, 4, 4, dtype=getattr(torch, kind))
        a, b = (x.clone().requires_grad_() for _ in range(2))
        for f, v in ((run, a), (theirs, b)):
            (f(v).float() ** 2).mean().backward()
        torch.testing.assert_close(a.grad, b.grad, rtol=rtol, atol=atol)
    pairs = [*zip(ours_.buffers(), theirs.buffers(), strict=True),
             *((p.grad, q.grad) for p, q in zip(ours_.parameters(), theirs.parameters(), strict=True))]  # fmt: skip
    for a, b in pairs:
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol)


def test_numbers_of_sizes() -> None:
    def f(x: Any) -> Any:
        return x * (x.shape[0] ** -0.5) + x.shape[1] / (x.shape[0] + 2)

    run = compiled(f, dynamic=True)
    for n in (4, 7):
        x = torch.randn(n, n + 1)
        torch.testing.assert_close(run(x), f(x))


def test_dropout_is_drawn_anew_and_its_derivative_has_its_mask() -> None:
    run = compiled(lambda x: F.dropout(torch.sin(x), 0.25), dynamic=True)
    for n in (40, 50):
        x = torch.rand(n, 30, requires_grad=True)
        y, other = run(x), run(x)
        assert not torch.equal(y, other)
        y.sum().backward()
        kept = (y.detach() != 0).float() / 0.75
        torch.testing.assert_close(x.grad, kept * torch.cos(x.detach()))
        assert abs((y == 0).float().mean() - 0.25) < 0.05
    found = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        found.append(run(x))
    assert torch.equal(found[0], found[1]) and not torch.equal(found[1], found[2])


def test_random_numbers_in_an_activation_checkpoint_are_refused() -> None:
    from torch.utils.checkpoint import checkpoint

    def f(x: Any) -> Any:
        return checkpoint(lambda v: F.dropout(v.sin(), 0.5), x, use_reentrant=False)

    with pytest.raises(Exception, match="within an activation checkpoint"):
        torch.compile(f, backend=ours.backend)(torch.rand(4, requires_grad=True))


def test_sizes_are_results() -> None:
    def f(x: Any) -> Any:
        return x.reshape(-1, 2) * 2, x.shape[0] * 3

    run = compiled(f, dynamic=True)
    for n in (4, 6):
        found, size = run(torch.ones(n, 2))
        assert found.shape == (n, 2) and size == 3 * n


def test_tensors_are_not_copied() -> None:
    seen: list[int] = []
    program_of = ours._Program._results

    def noting(self: Any, arrays: Any) -> Any:
        seen.append(arrays[0].ctypes.data)
        found = program_of(self, arrays)
        seen.append(found[0].ctypes.data)
        return found

    run = compiled(torch.exp)
    x = torch.randn(4, 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ours._Program, "_results", noting)
        y = run(x)
    assert seen == [x.data_ptr(), y.data_ptr()]
    turned = torch.randn(5, 4).t()
    torch.testing.assert_close(run(turned), turned.exp())


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float64", "complex64"])
def test_element_types(kind: str) -> None:
    x = torch.randn(3, 4).to(getattr(torch, kind))
    torch.testing.assert_close(compiled(lambda v: v * v + 1)(x), x * x + 1)


VIEWS: dict[str, tuple[Any, Any]] = {
    "of an input": (lambda x: x, lambda x: (x[:, x.shape[1] // 2 :], x.t(), x + 1)),
    "of a result": (lambda x: x * 2, lambda y: (y[1:], y.t(), y.detach())),
    "of a turned result": (lambda x: x.t() * 2, lambda y: (y[1:], y.t().view(-1), y)),
    "parts": (lambda x: x * 2, lambda y: y.chunk(2)),
    "one twice": (lambda x: x * 2, lambda y: (y, y)),
    "bits": (lambda x: x * 2, lambda y: (y.view(torch.int32), y)),
    "conjugate": (lambda x: torch.complex(x, x + 1), lambda y: (y.conj(), y.real, y)),
    "of several results": (lambda x: x.sort(1), lambda y: (y[0][1:], *y)),
}
"""What a function makes of its argument, and what it returns of that."""


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("made", "views"), VIEWS.values(), ids=VIEWS)
def test_outputs_lie_as_those_of_torch(made: Any, views: Any, dynamic: bool) -> None:
    def function(x: Any) -> Any:
        return views(made(x))

    x = torch.randn(5, 4)
    run = compiled(function, dynamic=dynamic)
    for given in (x, x.repeat(2, 1)) if dynamic else (x,):
        mine, theirs = given.clone(), given.clone()
        found, wanted = run(mine), function(theirs)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b)
        for t in (*found, *wanted):  # a write to one is seen in the others
            t.mul_(3)
        for a, b in zip([*found, mine], [*wanted, theirs], strict=True):
            torch.testing.assert_close(a, b)


def test_a_write_behind_a_break_is_seen_in_what_came_before_it() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        part = y[1:]
        torch._dynamo.graph_break()
        part.mul_(2)
        return y, part

    x = torch.randn(3, 4)
    for a, b in zip(torch.compile(f, backend=ours.backend)(x), f(x), strict=True):
        torch.testing.assert_close(a, b)


def test_a_size_that_no_tensor_of_the_backward_pass_has() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        y[1:] *= 2
        return y[:, 0].sum() * 3

    run = compiled(f, dynamic=True)
    for n in (3, 5):
        mine, theirs = (torch.ones(n, 4, requires_grad=True) for _ in range(2))
        run(mine).backward()
        f(theirs).backward()
        torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("seed", [0, 4, 14, 36, 47])
def test_random_programs(seed: int) -> None:
    """A few of those that ``tools/soak.py --torch`` runs."""
    assert difference(Program(seed)) is None


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="takes no options, found mode"):
        ours.backend(None, [], mode="fast")
    with pytest.raises(Exception, match="not there yet: special_bessel_j0 x 1"):
        compiled(torch.special.bessel_j0)(torch.ones(2))
    with pytest.raises(Exception, match="is on meta, and RLX takes tensors of the CPU"):
        compiled(lambda v: v + 1)(torch.ones(2, device="meta"))
