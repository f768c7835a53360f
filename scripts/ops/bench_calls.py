"""What the benchmark says to the service: memories and questions of made-up words, and the requests that carry them."""

import itertools
import json
import random
from typing import Any

SEED = 7
VOCABULARY = 4_000
TOPICS = tuple(
    f"project {name}" for name in ("alder", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "yew")
)
MEMORY_WORDS = 24
QUERY_WORDS = 5

_ONSETS = ("b", "br", "d", "f", "gr", "h", "k", "l", "m", "n", "p", "r", "st", "t", "tr", "v")
_VOWELS = ("a", "e", "i", "o", "u")
_SYLLABLES = tuple(f"{onset}{vowel}" for onset in _ONSETS for vowel in _VOWELS)


class Texts:
    """Sentences whose words are as unevenly frequent as those of a language; the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - the same texts for the same seed, nothing secret
        words = ["".join(syllables) for syllables in itertools.product(_SYLLABLES, repeat=2)]
        # The vocabulary is the same for every seed.
        self._words = random.Random(SEED).sample(words, VOCABULARY)  # noqa: S311 - as above
        self._frequencies = list(itertools.accumulate(1 / (rank + 20) for rank in range(VOCABULARY)))

    def memory(self) -> str:
        return self._sentence(MEMORY_WORDS)

    def query(self) -> str:
        return self._sentence(QUERY_WORDS)

    def topic(self) -> str:
        return self._chance.choice(TOPICS)

    def choice(self, ids: list[str]) -> str:
        return self._chance.choice(ids)

    def _sentence(self, count: int) -> str:
        chosen: dict[str, None] = {}
        while len(chosen) < count:
            chosen |= dict.fromkeys(self._chance.choices(self._words, cum_weights=self._frequencies, k=count))
        return " ".join([*chosen][:count])


def list_tools() -> bytes:
    return _message("tools/list", {})


def save(content: str, topic: str) -> bytes:
    return _call("save_context", {"content": content, "topic": topic})


def search(query: str) -> bytes:
    return _call("search_context", {"query": query})


def fetch(memory_id: str) -> bytes:
    return _call("fetch_context", {"id": memory_id})


def _call(tool: str, arguments: dict[str, Any]) -> bytes:
    return _message("tools/call", {"name": tool, "arguments": arguments})


def _message(method: str, params: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
