"""The models of ``torch_survey.py``: the smallest of each family of timm, and the architectures of
transformers with their configurations made small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch_survey import Result, enliven, judge, settle
from torch_survey_configs import Plan, Small, plans
from torch_survey_inputs import arguments, with_places

Case = Callable[[Result], None]

SMALL_WORDS = ("tiny", "nano", "pico", "femto", "atto", "small", "18", "_s", "xs", "mini", "lite",
               "050", "b0", "_t")  # fmt: skip
LARGEST = 350e6
"""The most weights of a model."""
SMALL = 20e6
"""The most of one that is taken while there is a smaller plan."""


def timm_cases() -> dict[str, Case]:
    """Every family of timm, with the model of it that has the fewest weights."""
    from timm.models import list_models, list_modules

    return {family: _timm_case(family) for family in list_modules() if list_models(module=family)}


def _smallest(family: str) -> str:
    """The least model of a family, among those whose names promise it."""
    import timm
    import torch

    def size(name: str) -> float:
        try:
            with torch.device("meta"):
                return sum(p.numel() for p in timm.create_model(name).parameters())
        except Exception:
            return float("inf")

    names = timm.list_models(module=family)
    return min(([n for n in names if any(w in n for w in SMALL_WORDS)] or names)[:8], key=size)


def _timm_case(family: str) -> Case:
    def run(result: Result) -> None:
        import timm
        import torch

        result["model"] = name = _smallest(family)
        torch.manual_seed(0)
        model: Any = timm.create_model(name).eval()
        cfg = model.default_cfg
        size = cfg.get("min_input_size") or cfg.get("input_size", (3, 224, 224))
        enliven(model)
        settle(model, torch.randn(2, *size))
        judge(model, (torch.randn(1, *size),), {}, result)

    return run


# -- transformers --------------------------------------------------------------------------


def transformers_cases() -> dict[str, Case]:
    """Every architecture that AutoModel knows."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return {n: _transformer_case(n) for n in MODEL_MAPPING_NAMES if n in CONFIG_MAPPING}


def _transformer_case(kind: str) -> Case:
    def run(result: Result) -> None:
        result["stage"] = "no small model"
        model, kwargs = _small_model(kind)
        enliven(model)
        settle(model, **kwargs)
        judge(model, (), kwargs, result)

    return run


def _small_model(kind: str) -> tuple[Any, dict[str, Any]]:
    """A small model that runs: by the first plan for its configuration that gives one."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = CONFIG_MAPPING[kind]()
    reasons: list[str] = []
    large: list[Plan] = []
    for plan in (every := list(plans(config))):
        same = len(reasons) > 2 and len(set(reasons[-3:])) == 1
        if same and plan is not every[-1] and not (plan.limit and plan.images):
            continue  # widths do not matter
        try:
            return _model(config, plan, SMALL)
        except MemoryError:
            large.append(plan)
        except Exception as e:
            reasons.append(f"{type(e).__name__}: {e}"[:200])
    for plan in large:
        try:
            return _model(config, plan, LARGEST)
        except Exception as e:
            reasons.append(f"{type(e).__name__}: {e}"[:200])
    raise RuntimeError(" | ".join(dict.fromkeys(reasons[::-1])))


def _model(config: Any, plan: Plan, largest: float) -> tuple[Any, dict[str, Any]]:
    import torch
    from transformers import AutoModel

    config = Small(plan).of(config)
    for k in ("use_cache", "output_attentions", "output_hidden_states"):
        if k in config.__dict__:
            setattr(config, k, False)
    with torch.device("meta"):
        try:
            config._attn_implementation = "sdpa"
            empty = AutoModel.from_config(config)
        except ValueError:
            config._attn_implementation = "eager"
            empty = AutoModel.from_config(config)
    size = sum(p.numel() for p in empty.parameters())
    if size > largest:
        raise MemoryError(f"{size / 1e6:.0f} million weights")
    torch.manual_seed(0)
    model = AutoModel.from_config(config).eval().float()
    if hasattr(model, "set_experts_implementation"):
        try:
            model.set_experts_implementation("batched_mm")
        except Exception as e:  # it has no experts
            assert e is not None
    return model, _working(model, config)


def _working(model: Any, config: Any) -> dict[str, Any]:
    """The first arguments with which a model runs."""
    import torch

    reasons: list[str] = []
    for given in arguments(model, config):
        tries = [given]
        while tries:
            kwargs = tries.pop()
            try:
                with torch.no_grad():
                    model(**kwargs)
            except Exception as e:
                reasons.append(f"{type(e).__name__}: {e}"[:160])
                if kwargs is given:
                    tries = list(with_places(given, config, reasons[-1]))
            else:
                return kwargs
    raise RuntimeError("; ".join(dict.fromkeys(reasons)))
