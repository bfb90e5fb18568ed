"""Model builders that load real weights. Public names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlx.errors import no_attribute

if TYPE_CHECKING:
    from rlx.models.bert import BertConfig, bert_encoder
    from rlx.models.embed import Embed
    from rlx.models.rerank import Rerank
    from rlx.models.safetensors import SafeTensors

__all__ = ["BertConfig", "Embed", "Rerank", "SafeTensors", "bert_encoder"]

_HOMES = {
    "BertConfig": "rlx.models.bert",
    "bert_encoder": "rlx.models.bert",
    "Embed": "rlx.models.embed",
    "Rerank": "rlx.models.rerank",
    "SafeTensors": "rlx.models.safetensors",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise no_attribute(__name__, name, __all__)
    import importlib

    from rlx.base.gc_pause import importing

    with importing():
        return getattr(importlib.import_module(home), name)
