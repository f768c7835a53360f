"""The local model route: WordLlama's static embeddings, whose weights ship in its package. No account, no network.

Loads about 16 MB of weights with the first text. Its packages are in the development lock only.
"""

import asyncio
import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from metacortex.adapters.local_merge import merged_by_rule
from metacortex.adapters.text_context import in_context
from metacortex.aside import aside
from metacortex.errors import InvalidArgument, ModelFailed
from metacortex.memory import Image, Memory
from metacortex.ports import Document
from metacortex.spaces import Space

DATED = "dated"
PIECE_CHARACTERS = 2_000


class LocalEmbedder:
    """The Embedder port. In the format `dated`, topic and day stand before the text."""

    space = Space("wordllama-l2-supercat", 256, DATED)
    known_formats = (DATED, "plain")
    part_characters = 1_000
    near_duplicate = 0.95

    async def ready(self) -> None:
        await asyncio.get_running_loop().run_in_executor(_THREAD, _model)

    async def embed_documents(self, documents: Sequence[Document], *, text_format: str) -> list[tuple[float, ...]]:
        return await _embed([in_context(document) if text_format == DATED else document.text for document in documents])

    async def embed_query(self, text: str, *, text_format: str) -> tuple[float, ...]:
        [vector] = await _embed([text])
        return vector


class LocalImages:
    """The local route cannot see: it stores an image under the text that came with it, or refuses."""

    async def describe(self, image: Image, caption: str) -> str | None:
        if not caption:
            raise InvalidArgument(
                "An image without text needs a model that can describe it, and MODEL_PROVIDER is local: "
                "send content with the image, or have the owner set MODEL_PROVIDER to gemini or vertex."
            )
        return None


class LocalMerger:
    """The local route cannot write: it keeps every distinct sentence, and says that this is all it did."""

    async def merge(self, sources: Sequence[Memory], *, topic: str) -> str:
        return await aside(merged_by_rule, sources)


# One at a time: the first text loads the weights, and long texts would otherwise add up their memory.
_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="local-model")


async def _embed(texts: Sequence[str]) -> list[tuple[float, ...]]:
    return await asyncio.get_running_loop().run_in_executor(_THREAD, lambda: [_embed_now(text) for text in texts])


def _embed_now(text: str) -> tuple[float, ...]:
    """The mean of all words' vectors, of length one. A long text is taken piece by piece, so that its size costs no memory."""
    pieces = (text[start : start + PIECE_CHARACTERS] for start in range(0, len(text), PIECE_CHARACTERS))
    total: Any = sum(_model().embed([piece], norm=False)[0] * len(piece) for piece in pieces)
    length = float((total**2).sum()) ** 0.5
    # A vector without direction cannot be compared with any.
    if not length > 0:
        raise ModelFailed("The local model finds no words in this text; add some.")
    return tuple(float(value) / length for value in total)


@functools.cache
def _model() -> Any:
    import wordllama

    folder = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(dim=LocalEmbedder.space.dimensions, cache_dir=folder, disable_download=True)
