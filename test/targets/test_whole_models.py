"""A block of a language model on the targets that take whole graphs; ``tools/graph_models.py`` has
larger ones."""

from __future__ import annotations

import pytest

from support.whole import STANDS
from support.whole_models import error_of, llama


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", STANDS)
def test_a_decoder_block_is_that_of_the_interpreter(name: str) -> None:
    stand = STANDS[name]
    if missing := stand.missing():
        pytest.skip(missing)
    assert error_of(*llama(4, wide=32, heads=2), stand) < 1e-5
