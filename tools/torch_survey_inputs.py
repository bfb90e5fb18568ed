"""Arguments for models of transformers, by the names of the parameters of ``forward``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

TOKENS = 12
Arguments = dict[str, Any]


def arguments(model: Any, config: Any) -> Iterator[Arguments]:
    """Sets of arguments to try: what ``forward`` cannot do without and its main input, then with
    the other modalities, and at last all that is known."""
    names = inspect.signature(model.forward).parameters
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    declared = {n for n, p in names.items() if p.kind in kinds}
    needed = {n for n, p in names.items() if n in declared and p.default is p.empty}
    makers = [Maker(model, config, frozenset(declared), form) for form in range(3)]
    main = getattr(model, "main_input_name", "input_ids")
    mains = [main] if isinstance(main, str) else list(main)
    if not set(mains) & declared:
        mains = ["input_ids"]
    least = [*mains, *needed]
    if getattr(config, "is_encoder_decoder", False) or hasattr(config, "canvas_length"):
        least.append("decoder_input_ids")
    least += [n for n in UNDRAWN if n in declared]
    if {"input_ids", "pixel_values", "decoder_input_ids"} & set(least):
        least.append("bbox")
    for more in ((), ("input_ids",), *MORE):
        if not set(more) <= declared:
            continue
        wanted = [n for n in ("attention_mask", *least, *more) if n in declared]
        if "input_ids" not in wanted and "attention_mask" not in needed:
            wanted = [n for n in wanted if n != "attention_mask"]
        for make in makers[: 1 + 2 * bool(set(wanted) & FORMS)]:
            found = {n: make(n) for n in dict.fromkeys(wanted)}
            if all(v is not None for n, v in found.items() if n in needed):
                yield {n: v for n, v in found.items() if v is not None}


MORE = (
    ("pixel_values",), ("input_ids", "pixel_values"), ("input_features",), ("input_values",),
    ("input_ids", "input_features"), ("input_ids", "input_values"), ("inputs_embeds",),
    ("input_ids", "pixel_values", "image_grid_thw"), ("encoder_hidden_states",),
    ("pixel_values", "pixel_attention_mask", "spatial_shapes"),
    ("input_features", "input_features_mask"), ("input_features", "feature_attention_mask"),
    ("input_ids", "visual_feats", "visual_pos"), ("pixel_values", "pixel_position_ids"),
    ("input_ids", "pixel_values", "pixel_attention_mask"), ("pixel_values", "target_sizes"),
    ("input_ids", "pixel_values", "image_embeds_position_mask"),
    ("states", "actions", "rewards", "returns_to_go", "timesteps"),
)  # fmt: skip


def with_places(given: Arguments, config: Any, refusal: str) -> Iterator[Arguments]:
    """The same with tokens for as many features of images or sound as a refusal counts."""
    import torch

    found = re.search(r"features:? ?(?:torch.Size\(\[)?(\d+)", refusal)
    if found is None or "input_ids" not in given:
        return
    kind = next((k for k in ("audio", "video") if k in refusal.lower()), "image")
    token = next(
        (v for c in _all(config) for k, v in c.__dict__.items()
         if k in (f"{kind}_token_id", f"{kind}_token_index") and isinstance(v, int)), None,
    )  # fmt: skip
    width = next((c.hidden_size for c in _all(config) if hasattr(c, "hidden_size")), 1)
    for count in (int(found[1]), int(found[1]) // width):
        if token is not None and 0 < count < 2000:
            places = torch.full((1, count), token)
            ids = torch.cat([given["input_ids"][:, :4], places, given["input_ids"][:, 4:]], 1)
            more = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            yield {**given, **{k: v for k, v in more.items() if k in given}}


FORMS = {"input_features", "input_values", "pixel_values", "decoder_input_ids"}
"""Arguments that models take in more than one form."""
UNDRAWN = ("sample", "noise")
"""Arguments without which models draw numbers, which could not be compared."""


class Maker:
    """Makes an argument by its name; None for a name that is not known."""

    def __init__(self, model: Any, config: Any, names: frozenset[str], form: int) -> None:
        self._model, self._config, self._names, self._form = model, config, names, form
        self._held: Arguments = {}

    def __call__(self, name: str) -> Any:
        if name not in self._held and name in MADE:
            self._held[name] = MADE[name](self)
        return self._held.get(name)

    # -- what configurations say ---------------------------------------------------------------

    def said(self, *names: str, default: Any = None) -> Any:
        """The first of some fields that a configuration has, or one inside it."""
        for config in _all(self._config):
            for n in names:
                found = config.__dict__.get(n)
                if found is not None:
                    return found
        return default

    def seen(self, *names: str, default: Any = None) -> Any:
        """The same of the part that sees."""
        part = next(
            (v for k, v in self._config.__dict__.items()
             if "config" in k and any(w in k for w in ("vision", "image", "visual", "backbone"))
             and hasattr(v, "to_dict")),
            self._config,
        )  # fmt: skip
        for config in (*_all(part), self._config):
            for n in names:
                found = config.__dict__.get(n)
                if found is not None:
                    return found
        return default

    def image_size(self) -> tuple[int, int]:
        size = self.seen("image_size", "img_size", "max_img_size", default=None)
        if size is None or isinstance(size, float):
            size = 128
        if isinstance(size, dict):
            return size.get("height", 224), size.get("width", 224)
        if isinstance(size, list | tuple) and len(size) > 2:
            size = size[-2:]
        sides: list[int] = [size] if isinstance(size, int) else [*size]
        return sides[0], sides[-1]

    def channels(self, *names: str) -> int:
        found = self.seen(*names, default=3)
        return found if isinstance(found, int) and found < 16 else 3

    # -- arguments ------------------------------------------------------------------------------

    def ids(self, length: int = TOKENS) -> Any:
        import torch

        return torch.randint(3, min(90, self.said("vocab_size", default=90)), (1, length))

    def image(self) -> Any:
        """An image, several of them, or the patches of one where a grid of them is needed: in rows,
        as images, or as images with the channels last."""
        import torch

        if {"grid_thw", "target_sizes"} & self._names or self._form == 2:
            return self.patches()
        if {"spatial_shapes", "pixel_position_ids"} & self._names:
            return self.patches()[None]
        channels = self.channels("num_channels", "in_channels", "in_chans")
        frames = (self.said("num_frames", default=2),) if self._form == 1 else ()
        return torch.randn(1, *frames, channels, *self.image_size())

    def patches(self) -> Any:
        """The pixels of 4x4 patches in rows, as models take them whose images differ in size."""
        import torch

        size = self.seen("patch_size", default=14)
        time = self.seen("temporal_patch_size", "patch_temporal", default=1)
        size = size if isinstance(size, int) else size[0]
        channels = self.channels("in_channels", "num_channels", "in_chans")
        if "target_sizes" in self._names:
            return torch.randn(1, channels, size, 16 * size)
        if self._form == 2:
            size *= self.seen("spatial_merge_size", default=1)
            return torch.randn(16, size, size, channels)
        if self._form == 1:
            return torch.randn(16, channels, size, size)
        return torch.randn(16, channels * time * size * size)

    def video(self) -> Any:
        import torch

        frames = self.seen("num_frames", "frames_per_clip", default=4)
        return torch.randn(1, frames, 3, *self.image_size())

    def sound(self) -> Any:
        """Samples, for some models with an axis of channels, or for others codes or the rows of
        spectrograms."""
        import torch

        config = self._config
        if hasattr(config, "num_mel_bins") and hasattr(config, "max_length"):
            return torch.randn(1, config.max_length, config.num_mel_bins)
        mono = self.said("audio_channels", "sampling_rate") is not None
        if self._form == 2:
            return torch.randint(0, 90, (1, TOKENS, self.said("num_codebooks", default=8)))
        return torch.randn(1, 1, 4800) if mono == (self._form == 0) else torch.randn(1, 4800)

    def features(self) -> Any:
        """The rows of a spectrogram, before or behind the axis of time, or as an image."""
        import torch

        names = ("feature_projection_input_dim", "num_mel_bins", "n_mels", "input_feat_size",
                 "input_feat_per_channel", "input_dim", "feature_size", "input_size")  # fmt: skip
        bins = self.said(*names, default=80) * self.said("num_stacked_frames", default=1)
        frames = self.said("n_window", "max_source_positions")
        if self._form == 2:
            return torch.randn(1, 1, 64, bins)
        if (frames is not None) == (self._form == 0):
            return torch.randn(1, bins, 2 * (frames or 4 * TOKENS))
        return torch.randn(1, 64, bins)

    def frames(self) -> Any:
        """A mask of all that a spectrogram holds."""
        import torch

        found = self("input_features")
        last = found.ndim == 3 and found.shape[1:] != (64, found.shape[-1])
        return torch.ones(1, found.shape[-1 if last else -2], dtype=torch.long)

    def series(self) -> Any:
        import torch

        length = self.said("context_length", default=64)
        lags = self.said("lags_sequence", default=[0])
        channels = self.said("num_input_channels", default=1)
        more = max(lags) if isinstance(lags, list | tuple) else 0
        several = self.said("num_input_channels") is not None
        shape = (1, length, channels) if several else (1, length + more)
        return torch.randn(*shape)

    def embeds(self, width: int | None = None, length: int = TOKENS) -> Any:
        import torch

        return torch.randn(1, length, width or self.said("hidden_size", "d_model", default=64))

    def decoded(self) -> Any:
        """Tokens for a decoder, or those of several codebooks."""
        import torch

        count = self.said("num_channels", "num_codebooks", default=0)
        several = self._form == 1 and count
        return torch.randint(3, 90, (1, 6, count)) if several else self.ids(6)

    def boxes(self) -> Any:
        import torch

        corner = torch.randint(0, 400, (1, TOKENS, 2))
        return torch.cat([corner, corner + torch.randint(1, 500, (1, TOKENS, 2))], -1)

    def places_of_images(self) -> Any:
        """A mask of the tokens that stand for what is seen."""
        import torch

        return torch.arange(TOKENS)[None] < self.said("latent_query_num", default=1)

    def noise(self) -> Any:
        """A number for each patch of an image."""
        import torch

        rows, columns = (side // self.seen("patch_size", default=16) for side in self.image_size())
        return torch.rand(1, rows * columns)

    def states(self) -> Any:
        """The patches of an image, or a series of vectors."""
        import torch

        if self.seen("patch_size") is not None:
            return self.patches()
        return torch.randn(1, self.said("hidden_size", default=64), 8)

    def seen_images(self) -> Any:
        """A mask of all patches, or of all of several images."""
        import torch

        images = self("pixel_values")
        count = images.shape[1] if images is not None and images.ndim == 5 else 16
        return torch.ones(1, count, dtype=torch.long)


def _all(config: Any) -> Iterator[Any]:
    yield config
    for v in list(config.__dict__.values()):
        if hasattr(v, "to_dict"):
            yield from _all(v)


def _ones(*shape: int) -> Callable[[Maker], Any]:
    def made(_: Maker) -> Any:
        import torch

        return torch.ones(*shape, dtype=torch.long)

    return made


def _mask(of: str, axis: int, kind: str = "long") -> Callable[[Maker], Any]:
    """Ones along an axis of another argument."""

    def made(m: Maker) -> Any:
        import torch

        return torch.ones(1, m(of).shape[axis], dtype=getattr(torch, kind))

    return made


def _random(*shape: int | str, whole: int = 0) -> Callable[[Maker], Any]:
    """Random numbers, or whole ones below a bound; a dim may be the name of a field."""

    def made(m: Maker) -> Any:
        import torch

        sizes = [d if isinstance(d, int) else m.said(*d.split("|"), default=64) for d in shape]
        return torch.randint(0, whole, sizes) if whole else torch.randn(*sizes)

    return made


def _moments(m: Maker) -> Any:
    """The time of each element of a series."""
    import torch

    count = m.said("num_time_features", default=0)
    return torch.randn(1, m("past_values").shape[1], count)


def _places(m: Maker) -> Any:
    """The rows and columns of 4x4 patches."""
    import torch

    return torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij"), -1).reshape(
        1, 16, 2
    )


def _grid(_: Maker) -> Any:
    import torch

    return torch.tensor([[1, 4, 4]])


MADE: dict[str, Callable[[Maker], Any]] = {
    "input_ids": Maker.ids, "attention_mask": _ones(1, TOKENS), "bbox": Maker.boxes,
    "decoder_input_ids": Maker.decoded, "pixel_values": Maker.image,
    "pixel_values_videos": Maker.video, "input_features": Maker.features,
    "input_values": Maker.sound, "past_values": Maker.series, "grid_thw": _grid,
    "image_grid_thw": _grid, "hidden_states": Maker.states, "inputs_embeds": Maker.embeds,
    "qformer_input_ids": Maker.ids, "input_features_mask": Maker.frames,
    "feature_attention_mask": Maker.frames,
    "encoder_hidden_states": lambda m: m.embeds(m.said("encoder_hidden_size")),
    "audio_mel": _random(1, 64, "input_feat_size"), "audio_mel_mask": lambda m: (
        _mask("audio_mel", 1, "bool")(m).logical_not()
    ),
    "states": _random(1, 6, "state_dim"), "actions": _random(1, 6, "act_dim"),
    "rewards": _random(1, 6, 1), "returns_to_go": _random(1, 6, 1),
    "timesteps": _random(1, 6, whole=9), "past_time_features": _moments,
    "past_observed_mask": lambda m: m("past_values") * 0 + 1,
    "past_values_padding": lambda m: _mask("past_values", 1)(m) * 0,
    "freq": _random(1, 1, whole=1), "pixel_position_ids": _places,
    "query_embeds": Maker.embeds, "prompt_pixel_values": Maker.image, "prompt_masks": Maker.image,
    "latents": _random(1, "hidden_size", 8), "noise_embeds": Maker.embeds,
    "context_hidden_states": lambda m: m.embeds(
        m.said("hidden_size") * len(m.said("target_layer_ids", default=[0]))
    ), "action_embeds": Maker.embeds,
    "visual_feats": _random(1, 10, "visual_feat_dim"), "visual_pos": _random(1, 10, 4),
    "pixel_attention_mask": Maker.seen_images, "spatial_shapes": lambda m: _grid(m)[:, 1:],
    "target_sizes": lambda m: _grid(m)[:, 1:], "sample": lambda _: False,
    "noise": Maker.noise, "image_embeds_position_mask": Maker.places_of_images,
    "inputs": lambda m: m.embeds(m.said("d_model")), "task_inputs": lambda m: m.ids(77),
    "classes_input_ids": Maker.ids, "classes_attention_mask": _ones(1, TOKENS),
    "tasks_input_ids": Maker.ids, "tasks_attention_mask": _ones(1, TOKENS),
    "classes_structure": _ones(1), "merge_sizes": _ones(1),
}  # fmt: skip
