"""The models of ``families/zoo.py``: from timm and transformers with fresh weights, and a few that
are written here.

A model is a module that takes tensors by position and returns tensors; a transformer is made of
its configuration, in a size that one core runs in some 100 ms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
from torch_survey import enliven, settle, tensors

Tensor = torch.Tensor


class Tuple(nn.Module):
    """A module that gives the tensors of what another returns, and takes its arguments by
    position."""

    def __init__(self, inner: Any, names: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.inner, self.names = inner, names

    def forward(self, *args: Tensor) -> Any:
        if self.names:
            found = tensors(self.inner(**dict(zip(self.names, args, strict=True))))
        else:
            found = tensors(self.inner(*args))
        return tuple(found) if len(found) > 1 else found[0]


def made(make: Callable[[], Any], names: tuple[str, ...] = (), size: int = 0) -> nn.Module:
    """A module in evaluation mode, whose weights are the same in every process; one of images of a
    size has batch norms that fit them."""
    torch.manual_seed(0)
    model = make().eval()
    enliven(model)
    if size:
        settle(model, torch.randn(2, 3, size, size))
    return Tuple(model, names).eval().requires_grad_(False)


def of_timm(name: str, size: int) -> nn.Module:
    """A model of timm for images of a size."""
    import timm

    return made(lambda: timm.create_model(name), size=size)


def of_transformers(kind: str, names: tuple[str, ...], **numbers: Any) -> nn.Module:
    """A model of transformers by the type of its configuration, and the arguments it takes."""
    from transformers import AutoConfig, AutoModel

    def make() -> Any:
        held = {"use_cache": False} if "use_cache" not in numbers else {}
        return AutoModel.from_config(AutoConfig.for_model(kind, **held, **numbers))

    return made(make, names)


def of_detection(name: str, names: tuple[str, ...], **numbers: Any) -> nn.Module:
    """A detector of transformers, with its heads."""
    from transformers import AutoConfig, AutoModelForObjectDetection

    def make() -> Any:
        config = AutoConfig.for_model(name, **numbers)
        return AutoModelForObjectDetection.from_config(config)

    return made(make, names)


def of_segmentation(name: str, **numbers: Any) -> nn.Module:
    """A segmenter of transformers, with its head."""
    from transformers import AutoConfig, AutoModelForSemanticSegmentation

    def make() -> Any:
        return AutoModelForSemanticSegmentation.from_config(AutoConfig.for_model(name, **numbers))

    return made(make, ("pixel_values",))


class Recurrent(nn.Module):
    """Token ids, a recurrent net, and scores of classes for each token."""

    def __init__(self, net: type[nn.RNNBase], hidden: int, **options: Any) -> None:
        super().__init__()
        self.words = nn.Embedding(5000, hidden)
        self.net = net(hidden, hidden, batch_first=True, **options)
        self.head = nn.Linear(hidden * (2 if options.get("bidirectional") else 1), 64)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.net(self.words(ids))[0])


def recurrent(net: str, hidden: int, **options: Any) -> nn.Module:
    """``Recurrent`` with its weights; the net by torch's name."""
    return made(lambda: Recurrent(getattr(nn, net), hidden, **options))


class Double(nn.Sequential):
    """Two convolutions of 3x3, each with its norm."""

    def __init__(self, inputs: int, outputs: int) -> None:
        def one(inputs: int) -> list[nn.Module]:
            return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs),
                    nn.ReLU()]  # fmt: skip

        super().__init__(*one(inputs), *one(outputs))


class UNet(nn.Module):
    """Four steps down by max pooling and up by transposed convolutions or by resizing
    (Ronneberger et al., 2015, padded)."""

    def __init__(self, width: int, resized: bool) -> None:
        super().__init__()
        widths = [width << i for i in range(5)]
        self.down = nn.ModuleList(
            Double(a, b) for a, b in zip([3, *widths[:-1]], widths, strict=True)
        )
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))

        def larger(a: int, b: int) -> nn.Module:
            if not resized:
                return nn.ConvTranspose2d(a, b, 2, 2)
            grown = nn.Upsample(scale_factor=2.0, mode="bilinear", align_corners=False)
            return nn.Sequential(grown, nn.Conv2d(a, b, 1))

        self.larger = nn.ModuleList(larger(a, b) for a, b in pairs)
        self.up = nn.ModuleList(Double(a, b) for a, b in pairs)
        self.head = nn.Conv2d(width, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for i, step in enumerate(self.down):
            x = step(x if i == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for larger, step, beside in zip(self.larger, self.up, kept[-2::-1], strict=True):
            x = step(torch.cat([beside, larger(x)], 1))
        return self.head(x)


def u_net(width: int, resized: bool) -> nn.Module:
    """``UNet`` with its weights."""
    return made(lambda: UNet(width, resized), size=64)


class SingleShot(nn.Module):
    """Boxes and scores at every place of three maps of features, and boxes in pixels
    (as in SSD and YOLO: Liu et al., 2016)."""

    def __init__(self, name: str, classes: int = 20, anchors: int = 3) -> None:
        super().__init__()
        import timm

        self.classes = classes
        self.body = timm.create_model(name, features_only=True, out_indices=(2, 3, 4))
        widths = self.body.feature_info.channels()
        self.heads = nn.ModuleList(
            nn.Conv2d(c, anchors * (classes + 4), 3, padding=1) for c in widths
        )

    def forward(self, image: Tensor) -> Tensor:
        found = []
        for head, features in zip(self.heads, self.body(image), strict=True):
            b, _, h, w = features.shape
            y = head(features).reshape(b, -1, self.classes + 4, h, w).permute(0, 1, 3, 4, 2)
            rows = torch.arange(h, dtype=torch.float32)[:, None].expand(h, w)
            columns = torch.arange(w, dtype=torch.float32)[None].expand(h, w)
            centre = torch.stack([columns, rows], -1) + y[..., :2].sigmoid()
            parts = [centre / w, y[..., 2:4].exp(), y[..., 4:].sigmoid()]
            found.append(torch.cat(parts, -1).flatten(1, 3))
        return torch.cat(found, 1)


def single_shot(name: str) -> nn.Module:
    """``SingleShot`` with its weights."""
    return made(lambda: SingleShot(name), size=128)
