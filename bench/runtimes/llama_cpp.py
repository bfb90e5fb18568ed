"""llama.cpp, by the C functions of the package llama-cpp-python, which has the options of a build
for this machine when it is built from source."""

from __future__ import annotations

import ctypes
import importlib
from pathlib import Path
from typing import Any

import numpy as np

from bench.case import Array

Rows = list[tuple[int, int, int, bool]]
"""Tokens of a step: the token, its position, its sequence, and whether its logits are wanted."""


class LlamaCpp:
    """A model and its cache, with room for ``context`` tokens of each of some sequences."""

    def __init__(self, path: Path, threads: int, context: int, sequences: int) -> None:
        self.lib: Any = importlib.import_module("llama_cpp")
        # Kept, since the library calls it for as long as it lives.
        kind = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
        self.quiet = kind(lambda *_: None)
        self.lib.llama_log_set(self.quiet, None)
        self.lib.llama_backend_init()
        given = self.lib.llama_model_default_params()
        self.model = self.lib.llama_model_load_from_file(str(path).encode(), given)
        assert self.model, f"llama.cpp cannot load {path}"
        given = self.lib.llama_context_default_params()
        given.n_ctx, given.n_batch, given.n_ubatch = context * sequences, 2048, 512
        given.n_seq_max = sequences
        given.n_threads = given.n_threads_batch = threads
        self.context = self.lib.llama_init_from_model(self.model, given)
        self.words = self.lib.llama_model_get_vocab(self.model)
        self.vocab = self.lib.llama_vocab_n_tokens(self.words)

    def ids(self, text: str) -> list[int]:
        """The tokens of a text, with those that a model wants around it."""
        data = text.encode()
        room = (self.lib.llama_token * (len(data) + 8))()
        count = self.lib.llama_tokenize(self.words, data, len(data), room, len(room), True, False)
        assert count > 0, f"llama_tokenize returned {count}"
        return list(room[:count])

    def step(self, rows: Rows) -> Array:
        """The logits that rows of a step want. What their sequences have from the first position of
        theirs on is forgotten before."""
        lib = self.lib
        memory = lib.llama_get_memory(self.context)
        for s in {s for _, _, s, _ in rows}:
            first = min(at for _, at, own, _ in rows if own == s)
            lib.llama_memory_seq_rm(memory, s, first, -1)
        batch = lib.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for i, (token, at, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, at, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, int(wanted)
        code = lib.llama_decode(self.context, batch)
        lib.llama_batch_free(batch)
        assert code == 0, f"llama_decode returned {code}"
        lib.llama_synchronize(self.context)
        chosen = [i for i, row in enumerate(rows) if row[3]]
        found = [lib.llama_get_logits_ith(self.context, i) for i in chosen]
        return np.stack([np.ctypeslib.as_array(p, (self.vocab,)) for p in found])
