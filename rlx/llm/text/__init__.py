"""Text of language models: tokens, and conversations as prompts.

splits.py     the pre-tokenizers that GGUF files name
backends.py   a tokenizer from the metadata of a GGUF file
folder.py     what the files of a Hugging Face folder say of tokens and templates
tokenizer.py  texts to ids and back
stream.py     ids to text as they come
template.py   conversations to prompts
"""

from __future__ import annotations

from rlx.llm.text.stream import Detokenizer
from rlx.llm.text.template import ChatTemplate
from rlx.llm.text.tokenizer import Tokenizer

__all__ = ["ChatTemplate", "Detokenizer", "Tokenizer"]
