"""all-MiniLM-L6-v2, the model behind many published figures: for evaluation, so that ours compare with them.

sentence-transformers, which runs it elsewhere, takes a gigabyte. The model is six layers of BERT, which numpy computes as
well: the same vectors to six decimals. A text is cut after 256 tokens, as sentence-transformers cuts it.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import groupby
from math import sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from threadpoolctl import ThreadpoolController
from tokenizers import Tokenizer

from metacortex.adapters.local_models import DATED
from metacortex.adapters.text_context import in_context
from metacortex.ports import Document
from metacortex.spaces import Space
from ops.minilm_weights import provide

MOST_TOKENS = 256
LAYERS = 6
HEADS = 12
EPSILON = 1e-12
# Of one batch: more make it no faster, and its largest intermediate values take 6 KB a token each.
BATCH_TOKENS = 2_048

Array = NDArray[np.float32]
TokenIds = list[int]


class MiniLmEmbedder:
    """The Embedder port. The weights are fetched now where they are missing, and load with the first text.

    Raises OpsError where they cannot be fetched.
    """

    space = Space("all-minilm-l6-v2", 384, DATED)
    known_formats = (DATED, "plain")
    # It reads 256 tokens.
    part_characters = 1_000
    near_duplicate = 0.95

    def __init__(self) -> None:
        self._folder = provide()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="minilm")

    async def ready(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, lambda: self._model)

    async def embed_documents(self, documents: Sequence[Document], *, text_format: str) -> list[tuple[float, ...]]:
        return await self._embed(
            [in_context(document) if text_format == DATED else document.text for document in documents]
        )

    async def embed_query(self, text: str, *, text_format: str) -> tuple[float, ...]:
        [vector] = await self._embed([text])
        return vector

    async def _embed(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        run = asyncio.get_running_loop().run_in_executor
        tokens = await run(self._thread, lambda: self._model.tokens(texts))
        vectors: list[tuple[float, ...]] = [()] * len(texts)
        for batch in batches(tokens):
            made = await run(self._thread, self._model.vectors, [tokens[place] for place in batch])
            for place, vector in zip(batch, made.tolist(), strict=True):
                vectors[place] = tuple(vector)
        return vectors

    @cached_property
    def _model(self) -> "_Model":
        return _Model(self._folder)


def batches(tokens: Sequence[TokenIds]) -> list[list[int]]:
    """The places of texts that are computed together: only those of equal length, so that none needs padding."""
    alike = groupby(sorted(range(len(tokens)), key=lambda place: len(tokens[place])), lambda place: len(tokens[place]))
    cut: list[list[int]] = []
    for length, group in alike:
        places, size = list(group), max(1, BATCH_TOKENS // length)
        cut += [places[start : start + size] for start in range(0, len(places), size)]
    return cut


class _Model:
    """The weights under their published names, and what is computed with them, in float32."""

    def __init__(self, folder: Path) -> None:
        self._weights: dict[str, Array] = load_file(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(MOST_TOKENS)
        self._tokenizer.no_padding()
        self._blas = ThreadpoolController()

    def tokens(self, texts: Sequence[str]) -> list[TokenIds]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch(texts)]

    def vectors(self, tokens: Sequence[TokenIds]) -> NDArray[np.float64]:
        """Unit vectors of texts that have equally many tokens: (texts, 384)."""
        shape = (len(tokens), len(tokens[0]))
        # Threads that wait for each other cost more than they save wherever something else runs, as an emulator does here.
        with self._blas.limit(limits=1, user_api="blas"):
            states = self._embedded(np.array(tokens))
            for layer in range(LAYERS):
                states = self._layer(f"encoder.layer.{layer}", states, shape)
        means = states.reshape(*shape, -1).mean(axis=1, dtype=np.float64)
        return means / np.linalg.norm(means, axis=1, keepdims=True)

    # States are (texts × tokens, 384) from here on: one large product is several times faster than one for each text.

    def _embedded(self, tokens: NDArray[np.int64]) -> Array:
        words, positions, kinds = (
            self._weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
        )
        states = words[tokens] + positions[: tokens.shape[1]] + kinds[0]
        return self._normed("embeddings.LayerNorm", states.reshape(tokens.size, -1))

    def _layer(self, name: str, states: Array, shape: tuple[int, int]) -> Array:
        attended = self._attention(f"{name}.attention.self", states, shape)
        attended = self._dense(f"{name}.attention.output.dense", attended)
        states = self._normed(f"{name}.attention.output.LayerNorm", states + attended)
        grown = gelu(self._dense(f"{name}.intermediate.dense", states))
        return self._normed(f"{name}.output.LayerNorm", states + self._dense(f"{name}.output.dense", grown))

    def _attention(self, name: str, states: Array, shape: tuple[int, int]) -> Array:
        query, key, value = (
            self._dense(f"{name}.{part}", states).reshape(*shape, HEADS, -1).swapaxes(1, 2)
            for part in ("query", "key", "value")
        )
        weights = softmax(query @ key.swapaxes(2, 3) / sqrt(query.shape[3]))
        return (weights @ value).swapaxes(1, 2).reshape(states.shape)

    def _dense(self, name: str, states: Array) -> Array:
        return states @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normed(self, name: str, states: Array) -> Array:
        centred = states - states.mean(axis=-1, keepdims=True)
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        return centred / np.sqrt(variance + EPSILON) * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def softmax(scores: Array) -> Array:
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def gelu(values: Array) -> Array:
    return values * (1 + erf(values * sqrt(0.5))) * 0.5


def erf(values: Array) -> Array:
    """The error function, which numpy lacks: Abramowitz and Stegun 7.1.26, to 1.5e-7, which is what float32 can tell."""
    size = np.abs(values)
    t = 1 / (1 + 0.3275911 * size)
    series = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    return np.copysign(1 - series * np.exp(-np.square(size)), values)
