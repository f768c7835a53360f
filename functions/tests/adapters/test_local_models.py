"""The local model route: real semantic search without an account."""

import math

import pytest

from builders import Service, ToolError
from images import PNG_BASE64
from metacortex.adapters.local_models import LocalEmbedder, LocalImages
from metacortex.bootstrap import Models


@pytest.fixture
def service() -> Service:
    return Service(models=Models(embedder=LocalEmbedder(), describer=LocalImages()))


FACTS = [
    "The production database runs PostgreSQL 17 and is backed up every night at two.",
    "Maria prefers meetings in the afternoon and never on Fridays.",
    "雾凇拼音 is the input schema we use on every machine.",
    "The invoice for the office chairs was paid in March.",
]


async def test_memories_are_found_by_meaning(service: Service) -> None:
    for fact in FACTS:
        await service.save(fact)
    questions = {
        "Which SQL server do we use?": 0,
        "When does Maria like to meet?": 1,
        "Have we paid for the chairs?": 3,
    }
    for question, expected in questions.items():
        matches = await service.search(question)
        assert matches[0]["summary"] == FACTS[expected]


@pytest.mark.parametrize("query", ["雾凇拼音", "雾凇 拼音"])
async def test_words_are_found_written_together_or_apart(service: Service, query: str) -> None:
    for fact in FACTS:
        await service.save(fact)
    assert (await service.search(query))[0]["summary"] == FACTS[2]


async def test_the_identical_text_ranks_first_with_a_score_near_one(service: Service) -> None:
    for fact in FACTS:
        await service.save(fact)
    matches = await service.search(FACTS[1])
    assert matches[0]["summary"] == FACTS[1]
    assert matches[0]["score"] >= 0.99
    scores = [match["score"] for match in matches]
    assert scores == sorted(scores, reverse=True)


async def test_an_off_topic_query_on_a_memory_of_one_scores_low(service: Service) -> None:
    await service.save(FACTS[0])
    [match] = await service.search("recipe for pancakes with blueberries")
    assert match["score"] < 0.3


@pytest.mark.parametrize("text", ["🦉", "x", "....", "a\0b", "word " * 70_000, "\u0301" * 5_000])
async def test_every_text_becomes_a_unit_vector(text: str) -> None:
    vector = await LocalEmbedder().embed_query(text, text_format="plain")
    assert len(vector) == 256
    assert math.isclose(sum(value * value for value in vector), 1, rel_tol=1e-5)


async def test_an_image_without_text_is_refused_naming_the_setting(service: Service) -> None:
    with pytest.raises(ToolError, match="MODEL_PROVIDER"):
        await service.call("save_context", image_base64=PNG_BASE64, image_mime_type="image/png")
