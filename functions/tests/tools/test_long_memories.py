"""Long memories with the local model: a fact deep inside one is found, and the memory stays one."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from builders import NOON, Service, environment, in_memory
from fakes import InMemoryMemories, PlaneEmbedder
from metacortex.adapters.local_models import LocalEmbedder
from metacortex.bootstrap import models
from metacortex.memory import NewMemory
from metacortex.settings import load

SUBJECTS = ["harbour", "railway", "bakery", "orchard", "library", "workshop", "quarry", "theatre", "market", "mill"]
FILLING = " ".join(
    f"The {subject} of the town was rebuilt after the flood, and its roof was paid for by the council in {1900 + year}."
    for year in range(15)
    for subject in SUBJECTS
)
FACT = "Our cat Minka is allergic to chicken."
QUESTION = "what food is the cat allergic to"
LONG = f"{FILLING} {FACT}"
CHINESE = "镇上的港口在洪水之后重建，屋顶由议会出钱。" * 300 + "我们的猫明卡对鸡肉过敏。"


@pytest.fixture(params=["fake", "firestore"])
def service(request: pytest.FixtureRequest) -> Service:
    stores = request.getfixturevalue("firestore_stores") if request.param == "firestore" else in_memory()
    return Service(stores=stores, models=models(load(environment()), None))


def kept(service: Service, item: dict[str, Any]) -> NewMemory:
    assert isinstance(service.stores.memories, InMemoryMemories)
    return service.stores.memories.stored[item["id"]]


@pytest.fixture
def local() -> Service:
    return Service(models=models(load(environment()), None))


def test_the_long_text_of_these_tests_is_long() -> None:
    assert len(LONG.split()) > 3_000


async def test_a_fact_in_the_last_sentence_of_three_thousand_words_is_found_first_with_its_part(
    service: Service,
) -> None:
    item = await service.save(LONG)
    await service.save(FILLING)
    for subject in SUBJECTS:
        await service.save(f"The {subject} of the town is open to everybody on Sundays.")
    matches = await service.search(QUESTION)
    assert [match["id"] for match in matches].count(item["id"]) == 1
    assert_shows_the_end(matches[0], item)


async def test_it_is_found_with_its_part_by_meaning_alone(service: Service) -> None:
    item = await service.save(LONG)
    await service.save(FILLING)
    by_meaning = Service(settings=environment(RETRIEVAL_MODE="vector"), stores=service.stores, models=service.models)
    matches = await by_meaning.search(QUESTION)
    assert len(matches) == 2
    assert_shows_the_end(matches[0], item)


def assert_shows_the_end(match: dict[str, Any], item: dict[str, Any]) -> None:
    assert match["id"] == item["id"]
    assert match["summary"].removesuffix("...") in LONG[-2_000:]


@pytest.mark.parametrize("place", [0, 7_000, 12_000])
async def test_a_fact_anywhere_in_a_long_memory_is_found(local: Service, place: int) -> None:
    cut = FILLING.index("The ", place)
    item = await local.save(f"{FILLING[:cut]}{FACT} {FILLING[cut:]}")
    await local.save("The bakery feeds a dog.")
    assert (await local.search(QUESTION))[0]["id"] == item["id"]


async def test_a_part_scores_as_its_own_text_does(local: Service) -> None:
    await local.save(LONG)
    await local.save(FILLING)
    with_fact, without = await local.search(QUESTION)
    assert with_fact["score"] > without["score"]


async def test_a_short_memory_has_no_parts_and_its_own_summary(local: Service) -> None:
    item = await local.save(FACT)
    assert kept(local, item).parts == ()
    [match] = await local.search(QUESTION)
    assert match["summary"] == FACT


@pytest.mark.parametrize(("length", "number"), [(1_000, 0), (1_001, 2), (400_000, 172)])
async def test_a_text_of_more_than_a_page_has_parts(local: Service, length: int, number: int) -> None:
    item = await local.save("x" * length)
    assert len(kept(local, item).parts) == number


async def test_a_long_memory_comes_back_whole(service: Service) -> None:
    item = await service.save(LONG)
    assert item["content"] == LONG
    assert (await service.fetch(item["id"]))["content"] == LONG


async def test_a_part_shows_the_metadata_of_its_memory(service: Service) -> None:
    item = await service.save(
        LONG,
        topic="Town",
        origin="user_asserted",
        valid_from=NOON - 1,
        valid_until=NOON + 1,
        artifact_refs=["town.md"],
        derived_from=["x"],
        confidence=0.5,
        source_session="s",
    )
    await service.save(LONG, topic="Other")
    [match] = await service.search(QUESTION, filter_topic="Town", filter_origin="user_asserted", valid_at=NOON)
    assert match["id"] == item["id"]
    assert match["metadata"] == item["metadata"]
    assert await service.search(QUESTION, filter_topic="Town", valid_at=NOON + 1) == []
    assert await service.search(QUESTION, filter_topic="Town", filter_origin="agent_inferred") == []


async def test_a_long_draft_is_found_among_drafts_alone(service: Service) -> None:
    item = await service.save(LONG, draft=True)
    assert await service.search(QUESTION) == []
    [match] = await service.search(QUESTION, "reader", filter_state="wip")
    assert match["id"] == item["id"]
    assert match["metadata"]["branch_state"] == "wip"


async def test_a_deprecated_memory_is_found_by_none_of_its_parts(service: Service) -> None:
    old = await service.save(LONG)
    new = await service.save(f"{FILLING} Minka the cat eats chicken again.")
    await service.call("deprecate_context", "default", id=old["id"], superseding_id=new["id"])
    assert [match["id"] for match in await service.search(QUESTION, limit=20)] == [new["id"]]
    [match] = await service.search(QUESTION, "reader", filter_state="deprecated", limit=20)
    assert match["id"] == old["id"]
    assert match["metadata"]["superseded_by"] == new["id"]
    assert match["metadata"]["branch_state"] == "deprecated"


async def test_merged_sources_are_found_by_none_of_their_parts_and_the_merged_memory_by_its_own(
    service: Service,
) -> None:
    ids = [(await service.save(f"{n}. {LONG}", draft=True))["id"] for n in range(2)]
    answer = await service.call("consolidate_context", "default", source_ids=ids)
    merged = answer["item"]["merged_id"]
    assert len(answer["item"]["merged_content"]) > 2_000
    [match] = await service.search(QUESTION, limit=20)
    assert match["id"] == merged
    assert "Minka" in match["summary"] or not answer["item"]["merged_content"].startswith(match["summary"][:100])
    assert await service.search(QUESTION, "reader", filter_state="wip") == []


async def test_a_repeated_save_of_a_long_memory_is_a_duplicate(service: Service) -> None:
    item = await service.save(LONG)
    answer = await service.call("save_context", content=LONG)
    assert (answer["write_status"], answer["item"]["id"]) == ("duplicate", item["id"])
    assert len(await service.search(QUESTION)) == 1


async def test_a_memory_that_matches_by_many_parts_comes_once_and_leaves_room_for_others(local: Service) -> None:
    much = await local.save(" ".join(f"{FACT} Number {i}." for i in range(500)))
    others = [await local.save(f"The {subject} has a cat.") for subject in SUBJECTS[:4]]
    matches = await local.search(QUESTION)
    assert len(matches) == 5
    assert {match["id"] for match in matches} == {item["id"] for item in [much, *others]}


async def test_a_long_memory_from_before_there_were_parts_is_found_as_a_whole(local: Service) -> None:
    item = await local.save(LONG)
    assert isinstance(local.stores.memories, InMemoryMemories)
    local.stores.memories.stored[item["id"]] = replace(kept(local, item), parts=())
    [match] = await local.search(QUESTION)
    assert match["id"] == item["id"]
    assert match["summary"] == LONG[:217] + "..."


async def test_chinese_without_spaces_is_cut_where_sentences_end(local: Service) -> None:
    item = await local.save(CHINESE)
    parts = kept(local, item).parts
    assert len(parts) == 8
    assert all(part.summary.startswith("镇上的港口") for part in parts)
    await local.save("面包店养了一条狗。")
    [match, _] = await local.search("猫对什么过敏")
    assert match["id"] == item["id"]


async def test_an_identifier_at_the_end_of_a_long_memory_is_found(service: Service) -> None:
    item = await service.save(f"{LONG} Ticket ERR_CONN_RESET-42.")
    for subject in SUBJECTS:
        await service.save(f"The {subject} has no ticket.")
    match, *_ = await service.search("err_conn_reset-42")
    assert match["id"] == item["id"]
    assert match["matched_by"] in {"lexical", "both"}


async def test_parts_are_embedded_with_topic_and_day_of_the_whole(local: Service) -> None:
    item = await local.save(LONG, topic="Town", valid_from="2023-05-08")
    [*_, end] = kept(local, item).parts
    text = LONG[LONG.rindex(end.summary.removesuffix("...")) :]
    assert end.vector == await LocalEmbedder().embed_query(f"Town, 8 May 2023: {text}", text_format="dated")


class PagedEmbedder(PlaneEmbedder):
    """The plane with small pages."""

    def __init__(self) -> None:
        super().__init__()
        self.part_characters = 40


async def test_all_parts_of_a_memory_are_one_call_of_the_model() -> None:
    calls: list[int] = []

    class CountingEmbedder(PagedEmbedder):
        async def embed_documents(self, documents: Any, *, text_format: str) -> list[tuple[float, ...]]:
            calls.append(len(documents))
            return await super().embed_documents(documents, text_format=text_format)

    service = Service(models=replace(models(load(environment()), None), embedder=CountingEmbedder()))
    await service.save("Owl at 10. " * 20)
    [number] = calls
    assert number > 5


async def test_a_part_that_is_nearer_than_everything_gives_its_memory_its_score(service: Service) -> None:
    paged = Service(stores=service.stores, models=replace(service.models, embedder=PagedEmbedder()))
    item = await paged.save("The owl of the barn at 90. \n\nThe owl of the mill at 0. \n\nThe owl of the town at 270. ")
    near = await paged.save("Near at 10")
    matches = await paged.search("at 0")
    assert [(match["id"], match["score"]) for match in matches] == [(item["id"], 1.0), (near["id"], 0.984808)]
    assert "at 0" in matches[0]["summary"]


async def test_the_words_of_a_memory_count_where_only_a_part_of_it_was_found(service: Service) -> None:
    few = Service(
        settings=environment(RETRIEVAL_CANDIDATES="5"),
        stores=service.stores,
        models=replace(service.models, embedder=PagedEmbedder()),
    )
    for i in range(6):
        await few.save(f"Neighbour {i} at 30")
    # Three words are rarer than the one that the long memory holds, so that nobody looks for its holders.
    for text in ("pelican at 180", "flamingo at 180", "heron at 180", "swallow at 180"):
        await few.save(text)
    item = await few.save("The swallow of the old barn at 32. \n\nThe mouse of the mill at 220. ")
    # A query of thirty characters points to 30 degrees.
    match, *_ = await few.search("pelican flamingo heron swallow")
    assert match["id"] == item["id"]
    assert (match["score"], match["summary"]) == (0.999391, "The swallow of the old barn at 32.")


@pytest.mark.slow
async def test_the_longest_memory_is_saved_searched_and_deprecated(service: Service) -> None:
    content = f"{(FILLING * 30)[:399_900]} {FACT}"
    item = await service.save(content)
    async with asyncio.timeout(10):
        [match] = await service.search(QUESTION)
    assert match["id"] == item["id"]
    assert FACT in match["summary"] or match["summary"].removesuffix("...") in content[-4_000:]
    await service.call("deprecate_context", "default", id=item["id"])
    assert await service.search(QUESTION) == []


async def test_a_long_memory_is_similar_to_its_like(local: Service) -> None:
    item = await local.save(LONG)
    answer = await local.call("save_context", content=f"{LONG} Again.")
    assert [match["id"] for match in answer["similar"]] == [item["id"]]
