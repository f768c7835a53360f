"""Memories merged into one text by Gemini."""

from collections.abc import Sequence

from metacortex.adapters.gemini_answer import whole_text
from metacortex.adapters.gemini_client import Route, answering
from metacortex.adapters.gemini_merge_prompt import INSTRUCTION, REQUEST, sources_as_json
from metacortex.errors import TooLarge
from metacortex.memory import Memory

SECONDS = 120.0
MOST_BYTES = 400_000
"""Of all sources' texts together, as UTF-8: about 100,000 tokens of English, a tenth of what the models read."""
MOST_TOKENS = 32_768
"""Of the answer, and of the thoughts before it where a model has any: half of what the models write at most."""


class GeminiMerger:
    """The Merger port."""

    def __init__(self, route: Route, model: str) -> None:
        self.route = route
        self._model = model

    async def merge(self, sources: Sequence[Memory], *, topic: str) -> str:
        _require_room(sources)
        async with answering(self.route, SECONDS) as client:
            from google.genai.types import GenerateContentConfig, Part

            # How much a model thinks is left to it: what one model takes as a setting for that, another refuses.
            config = GenerateContentConfig(
                system_instruction=INSTRUCTION, temperature=0.0, max_output_tokens=MOST_TOKENS
            )
            answer = await client.aio.models.generate_content(
                model=self._model,
                contents=[Part(text=sources_as_json(sources, topic)), Part(text=REQUEST)],
                config=config,
            )
        return whole_text(
            answer,
            refused="The model refuses to merge these memories; merge others, or save a merged text of your own.",
            cut_off="The model's merged text was cut off at its limit; merge fewer memories at once.",
            empty="The model answered no merged text; try again, or merge fewer memories at once.",
        )


def _require_room(sources: Sequence[Memory]) -> None:
    size = sum(len(memory.content.encode()) for memory in sources)
    if size > MOST_BYTES:
        raise TooLarge(
            f"The {len(sources)} memories are {size:,} bytes of UTF-8 together and the model merges at most "
            f"{MOST_BYTES:,}; merge fewer of them at once."
        )
