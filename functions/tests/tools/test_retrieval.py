"""Search by meaning and by words at once, as a client sees it: over the fake store, and over Firestore in the emulator."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from builders import NOON, Service, environment, in_memory, plane_models
from fakes import InMemoryMemories, PlaneEmbedder
from metacortex.adapters.local_models import LocalEmbedder
from metacortex.bootstrap import Stores, models
from metacortex.ports import Document
from metacortex.settings import load
from metacortex.spaces import CollectionSpaces, Space

DAY = 24 * 60 * 60 * 1000


@pytest.fixture(params=["fake", "firestore"])
def stores(request: pytest.FixtureRequest) -> Stores:
    return request.getfixturevalue("firestore_stores") if request.param == "firestore" else in_memory()


# Few candidates, so that few neighbours hide a memory.
NARROW = {"RETRIEVAL_CANDIDATES": "5"}


@pytest.fixture
def service(stores: Stores) -> Service:
    return Service(settings=environment(**NARROW), stores=stores)


def again(service: Service, **settings: str) -> Service:
    """Another process over the same memories, with other settings."""
    return Service(settings=environment(**settings), stores=service.stores, models=service.models)


async def crowd(service: Service, number: int = 7, name: str = "Neighbour", **arguments: Any) -> None:
    """Memories that are nearer to the queries `at 60` than anything else: more than a search looks at."""
    await service.save(f"{name} at 60", **arguments)
    some_at_once = asyncio.Semaphore(20)

    async def save(i: int) -> None:
        async with some_at_once:
            await service.save(f"{name} {i}x at 60", **arguments)

    await asyncio.gather(*map(save, range(1, number)))


def ids(matches: Sequence[dict[str, Any]]) -> list[str]:
    return [match["id"] for match in matches]


# --- What vectors miss ---


async def test_an_identifier_is_found_though_its_vector_lies_behind_fifty_others(stores: Stores) -> None:
    service = Service(stores=stores)
    await crowd(service, 55)
    wanted = await service.save("The gateway said ERR_CONN_RESET-42 at 120")
    best, *others = await service.search("what was err_conn_reset-42, at 60")
    assert best["id"] == wanted["id"]
    assert best["matched_by"] == "lexical"
    assert best["score"] == 0.5
    assert {match["matched_by"] for match in others} <= {"vector", "both"}
    assert {match["score"] for match in others} == {1.0}


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Minka is the cat, at 180", "MINKA at 60"),
        ("Deployed v1.2.3 at 180", "1.2.3 at 60"),
        ("Call getUserName() at 180", "getusername at 60"),
        ("See https://example.org/docs/owls at 180", "example.org at 60"),
        ("用 雾凇 拼音 at 180", "雾凇拼音 at 60"),
        ("用雾凇拼音 at 180", "雾凇 拼音 at 60"),
        ("我的猫很可爱 at 180", "猫 at 60"),
        ("물을 마셔요 at 180", "물 at 60"),
        ("Das Café in Łódź at 180", "cafe LODZ at 60"),
        ("Rime用abc输入 at 180", "abc at 60"),
        ("Embeddings were computed at 180", "embedded at 60"),
        ("Written in C++ at 180", "c++ at 60"),
    ],
)
async def test_words_are_found_however_they_are_written(text: str, query: str) -> None:
    service = Service(settings=environment(**NARROW))
    await crowd(service)
    wanted = await service.save(text)
    best = (await service.search(query))[0]
    assert (best["id"], best["matched_by"]) == (wanted["id"], "lexical")


@pytest.mark.parametrize("more", ["", " ".join(map(str, range(5_000, 6_000)))], ids=["short", "many numbers"])
@pytest.mark.parametrize(
    ("arguments", "query"),
    [
        ({"topic": "Vogelkunde"}, "vogelkunde at 60"),
        ({"artifact_refs": ["src/owls.py"]}, "owls.py at 60"),
        ({"valid_from": "2023-05-08"}, "8 May 2023 at 60"),
        ({}, "pelican at 60"),
    ],
)
async def test_a_memory_is_found_by_its_topic_its_day_what_it_is_about_and_its_words(
    arguments: dict[str, Any], query: str, more: str
) -> None:
    service = Service(settings=environment(**NARROW))
    await crowd(service)
    wanted = await service.save(f"Fact at 180 {more} of the pelican", **arguments)
    assert (await service.search(query))[0]["id"] == wanted["id"]


async def test_a_memory_without_a_day_of_its_own_is_found_by_the_day_it_was_saved(service: Service) -> None:
    await crowd(service)
    service.clock.advance(days=-100)
    wanted = await service.save("Fact at 180")
    assert (await service.search("February 2026 at 60"))[0]["id"] == wanted["id"]


async def test_what_is_near_and_holds_the_word_was_found_by_both(service: Service) -> None:
    both = await service.save("An owl at 60")
    near = await service.save("A mouse at 61")
    matches = await service.search("owl, at 60")
    assert [(match["id"], match["matched_by"]) for match in matches] == [(both["id"], "both"), (near["id"], "vector")]


async def test_a_word_that_nobody_holds_leaves_the_order_to_the_meaning(service: Service) -> None:
    for degrees in (90, 70, 80):
        await service.save(f"Fact at {degrees}")
    matches = await service.search("pelican at 60")
    assert [match["summary"] for match in matches] == ["Fact at 70", "Fact at 80", "Fact at 90"]
    assert {match["matched_by"] for match in matches} == {"vector"}


@pytest.mark.parametrize("query", ["?!", "🦉", "who am I", "…", "的", "x"])
async def test_a_query_without_rare_words_is_answered_by_meaning(service: Service, query: str) -> None:
    items = [await service.save(f"Fact at {degrees}") for degrees in (1, 90)]
    assert sorted(ids(await service.search(query))) == sorted(item["id"] for item in items)


async def test_a_query_of_five_thousand_words_is_answered(service: Service) -> None:
    wanted = await service.save("Ticket T-77 at 180")
    await service.save("Fact at 0")
    query = " ".join(["T-77", "at 0", *("owl" for _ in range(4_990))])
    assert (await service.search(query))[0]["id"] == wanted["id"]


async def test_a_word_in_every_memory_does_not_hide_the_nearest(service: Service) -> None:
    await crowd(service)
    nearest = await service.save("Neighbour of the owl at 61")
    assert (await service.search("neighbour at 61"))[0]["id"] == nearest["id"]


async def test_one_word_of_a_question_does_not_hide_the_answer_that_uses_others() -> None:
    service = Service(models=models(load(environment()), None))
    answer = await service.save("Our staff canteen serves noodles and soup at noon.")
    for text in ("The team standup is at nine.", "Invoices go to Alder.", "The team bought a printer."):
        await service.save(text)
    assert (await service.search("Where does the team eat lunch?"))[0]["id"] == answer["id"]


async def test_an_off_topic_memory_keeps_its_low_score_even_if_it_is_the_only_one(service: Service) -> None:
    await service.save("The owl of the barn at 180")
    for query in ("pancakes at 60", "the owl of the barn, at 60"):
        [match] = await service.search(query)
        assert match["score"] == 0.0


# --- What is kept apart ---


async def test_words_are_looked_for_only_where_the_filters_allow(service: Service) -> None:
    wanted = await service.save("E-1042 at 180", topic="Birds", origin="user_asserted", valid_from=NOON - DAY)
    await service.save("E-1042 is another at 180", topic="birds", origin="user_asserted", valid_from=NOON - DAY)
    await service.save("E-1042 was concluded at 180", topic="Birds", valid_from=NOON - DAY)
    await service.save("E-1042 is over at 180", topic="Birds", origin="user_asserted", valid_until=NOON)
    await service.save("E-1042 is a draft at 180", topic="Birds", origin="user_asserted", draft=True)
    found = await service.search(
        "E-1042 at 60", filter_topic="Birds", filter_origin="user_asserted", valid_at=NOON, limit=20
    )
    assert ids(found) == [wanted["id"]]


async def test_what_a_client_may_not_read_is_not_found_by_its_words(service: Service) -> None:
    draft = await service.save("E-1042 at 60", draft=True)
    known = await service.save("Fact at 60")
    old = await service.save("E-1042 is old, at 60")
    await service.call("deprecate_context", "default", id=old["id"])
    [match] = await service.search("E-1042 at 60", limit=20)
    assert (match["id"], match["matched_by"]) == (known["id"], "both")
    [match] = await service.search("E-1042 at 60", "reader", filter_state="wip")
    assert (match["id"], match["matched_by"]) == (draft["id"], "both")
    [match] = await service.search("E-1042 at 60", "reader", filter_state="deprecated")
    assert match["id"] == old["id"]


async def test_a_valid_memory_is_found_by_its_words_behind_many_expired_ones(service: Service) -> None:
    await crowd(service, 60, valid_until=NOON)
    valid = await service.save("E-1042 at 180")
    answer = await service.call("search_context", query="E-1042 at 60", valid_at=NOON)
    assert ids(answer["matches"]) == [valid["id"]]
    assert "truncated" not in answer


async def test_a_valid_memory_is_found_behind_many_expired_ones_that_hold_its_word(service: Service) -> None:
    await crowd(service, 60, "E-1042", valid_until=NOON)
    valid = await service.save("E-1042 at 180")
    assert ids(await service.search("E-1042 at 60", valid_at=NOON)) == [valid["id"]]


async def test_a_memory_without_terms_is_found_by_meaning() -> None:
    service = Service()
    old = await service.save("An owl at 60")
    memories = service.stores.memories
    assert isinstance(memories, InMemoryMemories)
    memories.stored[old["id"]] = replace(memories.stored[old["id"]], terms={})
    new = await service.save("An owl at 120")
    matches = await service.search("owl, at 60")
    assert {match["id"]: (match["matched_by"], match["score"]) for match in matches} == {
        old["id"]: ("vector", 1.0),
        new["id"]: ("both", 0.5),
    }


# --- What the owner sets ---


async def test_by_vectors_alone_scores_never_rise_and_words_do_not_count(service: Service) -> None:
    await crowd(service, 21)
    await service.save("E-1042 at 120")
    for settings in ({"RETRIEVAL_MODE": "vector"}, {"RETRIEVAL_LEXICAL_WEIGHT": "0"}):
        matches = await again(service, **settings).search("E-1042 at 61", limit=20)
        assert len(matches) == 20
        assert {match["matched_by"] for match in matches} == {"vector"}
        scores = [match["score"] for match in matches]
        assert scores == sorted(scores, reverse=True)
        assert "E-1042 at 120" not in [match["summary"] for match in matches]


@pytest.mark.parametrize(("weight", "first"), [("0.05", "near"), ("0.95", "named"), ("1", "named")])
async def test_the_weight_decides_between_meaning_and_words(service: Service, weight: str, first: str) -> None:
    await service.save("It is near, at 60")
    await service.save("E-1042 named at 90")
    await service.save("Far from both at 180")
    matches = await again(service, RETRIEVAL_LEXICAL_WEIGHT=weight).search("E-1042 at 60")
    assert first in matches[0]["summary"]


async def test_without_a_floor_nothing_is_said_of_one(service: Service) -> None:
    await service.save("Fact at 180")
    assert "below_floor" not in await service.call("search_context", query="at 60")


async def test_what_is_below_the_floor_is_left_out_and_counted_but_not_what_is_asked_for_by_name(
    service: Service,
) -> None:
    near = await service.save("Fact at 6")
    named = await service.save("E-1042 at 180")
    await service.save("Other at 150")
    # A query of six characters points to 6 degrees.
    answer = await again(service, SEARCH_MIN_SCORE="0.5").call("search_context", query="E-1042")
    assert [(match["id"], match["score"]) for match in answer["matches"]] == [(named["id"], 0.0), (near["id"], 1.0)]
    assert answer["below_floor"] == 1


async def test_a_floor_above_everything_leaves_an_empty_answer_that_says_so(service: Service) -> None:
    for degrees in (10, 20, 30):
        await service.save(f"Fact at {degrees}")
    answer = await again(service, SEARCH_MIN_SCORE="1").call("search_context", query="at 60", limit=2)
    assert (answer["matches"], answer["below_floor"]) == ([], 2)


async def test_a_match_below_the_floor_does_not_take_the_place_of_one_above(service: Service) -> None:
    await service.save("A pelican at 180")
    near = await service.save("Fact at 61")
    floored = again(service, SEARCH_MIN_SCORE="0.5", RETRIEVAL_LEXICAL_WEIGHT="1")
    answer = await floored.call("search_context", query="pelican unheard-of at 60", limit=1)
    assert (ids(answer["matches"]), answer["below_floor"]) == ([near["id"]], 1)


async def test_with_a_floor_a_new_memory_answers_no_matches() -> None:
    service = Service(settings=environment(SEARCH_MIN_SCORE="0.5"))
    assert (await service.call("search_context", query="at 60"))["matches"] == []


# --- Many ---


@pytest.mark.slow
async def test_hundreds_of_equal_memories_are_searched_at_once_and_always_alike(service: Service) -> None:
    await crowd(service, 300)
    async with asyncio.timeout(10):
        first = await service.search("neighbour at 60", limit=20)
    assert len(set(ids(first))) == 20
    assert ids(await service.search("neighbour at 60", limit=20)) == ids(first)


async def test_ten_thousand_equal_memories_give_a_bounded_answer() -> None:
    service = Service()
    item = await service.save("E-1042 of the owl at 60")
    memories = service.stores.memories
    assert isinstance(memories, InMemoryMemories)
    saved = memories.stored[item["id"]]
    for i in range(10_000):
        memories.stored[f"copy-{i}"] = replace(saved, memory=replace(saved.memory, id=f"copy-{i}"))
    async with asyncio.timeout(10):
        answer = await service.call("search_context", query="E-1042 of the owl at 60", limit=20)
    assert len(answer["matches"]) == 20
    assert {match["score"] for match in answer["matches"]} == {1.0}
    assert "truncated" not in answer


# --- The text that is embedded ---


class ReadingEmbedder(PlaneEmbedder):
    """Keeps what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.documents: list[Document] = []

    async def embed_documents(self, documents: Sequence[Document], *, text_format: str) -> list[tuple[float, ...]]:
        self.documents += documents
        return await super().embed_documents(documents, text_format=text_format)


async def test_a_text_is_embedded_with_its_topic_and_the_day_it_holds_from_or_was_saved() -> None:
    embedder = ReadingEmbedder()
    service = Service(models=plane_models(embedder=embedder))
    item = await service.save("Fact at 10", topic="Birds", valid_from="2023-05-08")
    await service.save("Other at 10")
    assert embedder.documents == [
        Document(text="Fact at 10", topic="Birds", date=1_683_504_000_000),
        Document(text="Other at 10", topic="general", date=NOON),
    ]
    assert (await service.fetch(item["id"]))["content"] == "Fact at 10"


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (Document(text="It rains.", topic="Birds", date=1_683_504_000_000), "Birds, 8 May 2023: It rains."),
        (Document(text="It rains.", topic="general", date=1_683_504_000_000), "8 May 2023: It rains."),
        (Document(text="It rains.", topic="Birds"), "Birds: It rains."),
        (Document(text="It rains.", topic="general"), "It rains."),
    ],
)
async def test_the_local_model_reads_topic_and_day_before_the_text(document: Document, text: str) -> None:
    embedder = LocalEmbedder()
    assert await embedder.embed_documents([document], text_format="dated") == [
        await embedder.embed_query(text, text_format="dated")
    ]
    assert await embedder.embed_documents([document], text_format="plain") == [
        await embedder.embed_query("It rains.", text_format="plain")
    ]


@pytest.mark.parametrize(("named", "text"), [("plain", "It rains."), ("dated", "Birds, 8 May 2023: It rains.")])
async def test_a_collection_keeps_the_form_of_text_that_it_names(named: str, text: str) -> None:
    service = Service(models=models(load(environment()), None))
    memories = service.stores.memories
    assert isinstance(memories, InMemoryMemories)
    space = Space("wordllama-l2-supercat", 256, named)
    memories.named = CollectionSpaces.only(space)
    item = await service.save("It rains.", topic="Birds", valid_from="2023-05-08")
    embedding = memories.stored[item["id"]].embedding
    assert embedding.space_id == space.id
    assert embedding.vector == await LocalEmbedder().embed_query(text, text_format=named)
    assert item["content"] == "It rains."


async def test_the_local_model_finds_what_happened_on_a_day() -> None:
    service = Service(models=models(load(environment()), None))
    for day in ("2023-05-08", "2023-05-09", "2023-06-08", "2024-05-08"):
        await service.save(f"The owl was fed at dawn ({day[::-1]})", valid_from=day)
    [match, *_] = await service.search("What happened on 9 May 2023?")
    assert match["metadata"]["valid_from"] == "2023-05-09T00:00:00.000Z"
