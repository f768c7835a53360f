"""The local model route: real semantic search without an account."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import NOON, Service, ToolError, environment, plane_models
from images import PNG_BASE64
from metacortex.adapters.local_merge import HEADING, merged_by_rule
from metacortex.adapters.local_models import LocalEmbedder
from metacortex.bootstrap import models
from metacortex.memory import BranchState, Memory, Metadata, Modality
from metacortex.settings import load
from metacortex.spaces import Space


@pytest.fixture
def service() -> Service:
    return Service(models=models(load(environment(MODEL_PROVIDER="local")), None))


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


async def test_the_identical_text_ranks_first_with_a_score_near_one() -> None:
    embedder = LocalEmbedder()
    embedder.space = Space(embedder.space.model, embedder.space.dimensions, "plain")
    service = Service(settings=environment(RETRIEVAL_MODE="vector"), models=plane_models(embedder=embedder))
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


# --- Merging by rule ---


def memory(content: str, created_at: int | None = NOON, valid_from: int | None = None) -> Memory:
    metadata = Metadata(
        topic="t",
        branch_state=BranchState.WIP,
        modality=Modality.TEXT,
        created_at=created_at,
        valid_from=valid_from,
    )
    return Memory(id="m", content=content, metadata=metadata)


async def merged(service: Service, *texts: str) -> str:
    """What is merged of texts, the first of which is the oldest, below the heading."""
    sources = [memory(text, NOON + position) for position, text in enumerate(texts)]
    heading, _, below = (await service.models.merger.merge(sources, topic="t")).partition("\n\n")
    assert heading == "Merged by rule, newest first, without a model:"
    return below


async def test_memories_are_merged_newest_first_and_the_text_says_by_what_rule(service: Service) -> None:
    assert await merged(service, "The owl lives in the barn.", "The owl eats mice.") == (
        "The owl eats mice.\n\nThe owl lives in the barn."
    )


async def test_a_sentence_that_a_newer_memory_says_is_left_out_whatever_stands_around_it(service: Service) -> None:
    older, newer = "The owl lives in the barn.   It is old! Who feeds it?", "It is old!\nThe owl lives in the barn."
    assert await merged(service, older, newer) == "It is old!\nThe owl lives in the barn.\n\nWho feeds it?"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Use tar -C to extract.", "Use tar -c to extract."),
        ("The topic is Birds.", "The topic is birds."),
        ("Split at `a  b`.", "Split at `a b`."),
        ("if owl:\n    feed()\n    rest()", "if owl:\n    feed()\n  rest()"),
    ],
)
async def test_what_differs_in_case_or_spacing_may_differ_in_meaning(service: Service, one: str, other: str) -> None:
    assert await merged(service, one, other) == f"{other}\n\n{one}"


async def test_equal_memories_become_one(service: Service) -> None:
    assert await merged(service, "Fact 7.", "Fact 7. ", "Fact 7.") == "Fact 7."


async def test_east_asian_sentences_end_without_a_space(service: Service) -> None:
    assert (
        await merged(service, "猫は寝る。犬は走る！誰？", "犬は走る！鳥が鳴く。")
        == "犬は走る！鳥が鳴く。\n\n猫は寝る。誰？"
    )


async def test_a_quotation_that_goes_on_is_one_sentence(service: Service) -> None:
    assert await merged(service, "彼は「雨だ。」と言った。", "彼女は「雨だ。」と聞いた。") == (
        "彼女は「雨だ。」と聞いた。\n\n彼は「雨だ。」と言った。"
    )


async def test_lines_stay_lines(service: Service) -> None:
    assert await merged(service, "# Ports\n- web: 80\n\n- mail: 25", "# Ports\n- web: 8080\n- mail: 25") == (
        "# Ports\n- web: 8080\n- mail: 25\n\n- web: 80"
    )


async def test_a_line_is_not_parted_from_the_indented_lines_below_it(service: Service) -> None:
    web, mail = "web:\n  enabled: true\n  port: 80", "mail:\n  enabled: true\n  port: 25"
    assert await merged(service, web, f"{mail}\n{mail}") == f"{mail}\n{mail}\n\n{web}"
    assert await merged(service, f"{web}\nlast", mail, web) == f"{web}\n\n{mail}\n\nlast"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Call Dr. Smith.", "Call Dr. Jones."),
        ("Use a library, e.g. NumPy.", "Use a library, e.g. SciPy."),
        ("Meet J. Smith.", "Meet J. Jones."),
        ("1. Boil.", "1. Fry."),
        ("See no. 5.", "See no. 6."),
        ("It costs approx. 5 EUR.", "It costs approx. 6 EUR."),
        ("Version 1.2 of example.org is out.", "Version 1.3 of example.org is out."),
    ],
)
async def test_a_full_stop_inside_a_sentence_does_not_cost_it_its_beginning(
    service: Service, one: str, other: str
) -> None:
    assert await merged(service, one, other) == f"{other}\n\n{one}"


async def test_a_text_merged_by_rule_before_loses_its_heading(service: Service) -> None:
    assert await merged(service, f"{HEADING}\n\nOld fact.", "New fact.") == "New fact.\n\nOld fact."


def test_the_newest_is_what_holds_since_last_and_what_has_no_date_is_oldest() -> None:
    sources = [memory("Saved.", 30), memory("Unknown.", None), memory("Valid.", 10, 40), memory("Ended.", 50, 20)]
    assert merged_by_rule(sources) == f"{HEADING}\n\nValid.\n\nSaved.\n\nEnded.\n\nUnknown."


PIECES = st.sampled_from(["a", "B", "5", "Dr.", "e.g.", *" .!?。！「」)-", '"', "\n", "\t", "\r\n", "\u2028"])
TEXTS = st.lists(st.lists(PIECES, min_size=1).map("".join), min_size=2, max_size=4)


@given(TEXTS)
def test_whatever_is_merged_no_word_is_lost_and_the_result_is_always_the_same(texts: list[str]) -> None:
    sources = [memory(text, NOON + position) for position, text in enumerate(texts)]
    result = merged_by_rule(sources)
    assert merged_by_rule(sources) == result
    assert words(*texts) <= words(result)


def words(*texts: str) -> set[str]:
    return {word for text in texts for word in re.findall(r"\w+", text)}


@pytest.mark.parametrize("text", [".", "🦉", "\n \n", "." * 200_000, "a. " * 100_000, "。" * 200_000, ".)" * 100_000])
def test_no_text_is_too_odd_or_too_long_to_merge(text: str) -> None:
    assert merged_by_rule([memory(text), memory(f"{text} x", NOON + 1)]).startswith(HEADING)
