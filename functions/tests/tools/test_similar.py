"""What a save says of memories that are nearly the same: over the fake store, and over Firestore in the emulator."""

import asyncio
import json
import logging
from typing import Any

import pytest

from builders import PROFILES, Service, environment, in_memory
from fakes import InMemoryEvents, InMemoryMemories, PlaneEmbedder
from metacortex import service as service_module
from metacortex.bootstrap import Stores, models
from metacortex.errors import MetaCortexError, TimedOut, Unavailable
from metacortex.events import Event
from metacortex.fusion import Candidate
from metacortex.memory import NewMemory
from metacortex.ports import Fingerprint, Question
from metacortex.settings import load


@pytest.fixture(params=["fake", "firestore"])
def service(request: pytest.FixtureRequest) -> Service:
    stores = request.getfixturevalue("firestore_stores") if request.param == "firestore" else in_memory()
    return Service(stores=stores)


async def saved(service: Service, content: str, profile: str = "agent", **arguments: Any) -> dict[str, Any]:
    """The whole answer of a save."""
    return await service.call("save_context", profile, content=content, **arguments)


async def similar(service: Service, content: str, profile: str = "agent", **arguments: Any) -> list[str]:
    """The summaries of what a save says is nearly the same."""
    answer = await saved(service, content, profile, **arguments)
    return [match["summary"] for match in answer.get("similar", [])]


# --- What is named ---


async def test_a_save_names_the_three_nearest_of_what_is_nearly_the_same(service: Service) -> None:
    items = [await service.save(f"Fact at {degrees}") for degrees in (11, 14, 12, 13, 40)]
    answer = await saved(service, "New at 10")
    assert answer["write_status"] == "created"
    assert answer["similar"] == [
        {"id": items[0]["id"], "score": pytest.approx(0.999848), "summary": "Fact at 11"},
        {"id": items[2]["id"], "score": pytest.approx(0.999391), "summary": "Fact at 12"},
        {"id": items[3]["id"], "score": pytest.approx(0.99863), "summary": "Fact at 13"},
    ]
    assert list(answer) == ["item", "write_status", "similar"]


@pytest.mark.parametrize(("degrees", "named"), [(8.1, True), (8.2, False), (90, False), (180, False)])
async def test_only_what_is_near_enough_for_the_model_is_named(degrees: float, named: bool) -> None:  # noqa: FBT001
    service = Service()
    await service.save(f"Fact at {degrees}")
    assert bool(await similar(service, "New at 0")) is named


async def test_without_any_the_answer_says_nothing_of_it(service: Service) -> None:
    assert "similar" not in await saved(service, "First at 10")
    assert "similar" not in await saved(service, "Other at 90")


async def test_only_active_memories_of_the_same_topic_are_named(service: Service) -> None:
    await service.save("Draft at 10", topic="Birds", draft=True)
    retired = await service.save("Retired at 10", topic="Birds")
    await service.call("deprecate_context", "default", id=retired["id"])
    await service.save("Merged at 10", "default", topic="Birds", branch_state="merged")
    await service.save("Elsewhere at 10", topic="birds")
    await service.save("Nowhere at 10")
    await service.save("Active at 10", topic="Birds")
    assert await similar(service, "New at 10", topic=" Birds ") == ["Active at 10"]


async def test_a_draft_names_active_memories_too(service: Service) -> None:
    await service.save("Active at 10")
    assert await similar(service, "Draft at 10", draft=True) == ["Active at 10"]


async def test_a_memory_that_lasts_no_more_but_is_active_is_named(service: Service) -> None:
    await service.save("Ended at 10", valid_until="2020-01-01")
    assert await similar(service, "New at 10") == ["Ended at 10"]


async def test_the_same_text_again_after_the_window_names_the_old_one(service: Service) -> None:
    await service.save("Fact at 10")
    service.clock.advance(days=40)
    assert await similar(service, "Fact at 10") == ["Fact at 10"]


async def test_a_duplicate_names_none(service: Service) -> None:
    await service.save("Near at 10")
    await service.save("Fact at 10")
    answer = await saved(service, "Fact at 10")
    assert answer["write_status"] == "duplicate"
    assert "similar" not in answer


async def test_a_client_that_may_not_read_active_memories_is_told_of_none(service: Service) -> None:
    await service.save("Active at 10")
    drafting = [{**PROFILES[0], "allowedFilterStates": ["wip"]}, *PROFILES[1:]]
    scribe = Service(
        settings=environment(MCP_CLIENT_PROFILES_JSON=json.dumps(drafting)),
        stores=service.stores,
        models=service.models,
    )
    assert await similar(scribe, "New at 10") == []
    assert await similar(scribe, "Draft at 10", draft=True) == []
    assert len(await similar(scribe, "Admin's at 10", "default")) == 2


async def test_summaries_are_short_and_what_is_never_shown_is_not_shown(service: Service) -> None:
    await service.save("Fact at 10 " + "word\n" * 100)
    answer = await saved(service, "New at 10")
    [match] = answer["similar"]
    assert set(match) == {"id", "score", "summary"}
    assert len(match["summary"]) == 220


async def test_the_local_model_tells_nearly_the_same_from_the_related() -> None:
    service = Service(models=models(load(environment()), None))
    await service.save("The production database is PostgreSQL 17 and is backed up every night at two.")
    await service.save("The invoice for the office chairs was paid in March.")
    assert await similar(service, "Maria prefers meetings in the afternoon.") == []
    [match] = await similar(service, "The production database is PostgreSQL 18 and is backed up every night at two.")
    assert "PostgreSQL 17" in match


# --- What it costs ---


async def test_it_costs_no_further_call_of_a_model(service: Service) -> None:
    embedder = service.models.embedder
    assert isinstance(embedder, PlaneEmbedder)
    await service.save("Fact at 10")
    assert await similar(service, "New at 10") == ["Fact at 10"]
    assert embedder.calls == ["Fact at 10", "New at 10"]


class MeetingMemories(InMemoryMemories):
    """The fake, where a commit and a search each go on only when the other is on its way."""

    def meet(self) -> None:
        self.meeting = asyncio.Barrier(2)

    async def save(self, new: NewMemory, fingerprint: Fingerprint, event: Event) -> bool:
        async with asyncio.timeout(10):
            await self.meeting.wait()
        return await super().save(new, fingerprint, event)

    async def nearest(self, question: Question, limit: int) -> list[Candidate]:
        async with asyncio.timeout(10):
            await self.meeting.wait()
        return await super().nearest(question, limit)


async def test_they_are_looked_up_beside_the_commit() -> None:
    events = InMemoryEvents()
    memories = MeetingMemories(events)
    memories.meet()
    service = Service(stores=Stores(memories=memories, events=events))
    await service.save("Fact at 10")
    assert await similar(service, "New at 10") == ["Fact at 10"]


# --- What cannot be looked up ---


class LateMemories(InMemoryMemories):
    """The fake, where a search answers only after the commit, or never."""

    never = False

    def prepare(self) -> None:
        self.committed = asyncio.Event()
        self.searching = asyncio.Event()
        self.was_cancelled = False

    async def save(self, new: NewMemory, fingerprint: Fingerprint, event: Event) -> bool:
        stored = await super().save(new, fingerprint, event)
        self.committed.set()
        return stored

    async def nearest(self, question: Question, limit: int) -> list[Candidate]:
        self.searching.set()
        await self.committed.wait()
        try:
            if self.never:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return await super().nearest(question, limit)


@pytest.fixture
def late() -> LateMemories:
    memories = LateMemories(InMemoryEvents())
    memories.prepare()
    return memories


def over(memories: InMemoryMemories) -> Service:
    return Service(stores=Stores(memories=memories, events=memories.events))


async def test_a_memory_is_not_similar_to_itself_though_it_is_stored_already(late: LateMemories) -> None:
    service = over(late)
    assert await similar(service, "Fact at 10") == []
    for degrees in (11, 12, 13, 14):
        await service.save(f"Fact at {degrees}")
    assert await similar(service, "New at 10") == ["Fact at 10", "Fact at 11", "Fact at 12"]


async def test_a_lookup_that_hangs_is_given_up_and_the_save_answers(
    late: LateMemories, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert service_module.SIMILAR_SECONDS == 2
    monkeypatch.setattr(service_module, "SIMILAR_SECONDS", 0.05)
    late.never = True
    service = over(late)
    async with asyncio.timeout(1):
        answer = await saved(service, "Fact at 10")
    assert answer["write_status"] == "created"
    assert "similar" not in answer
    assert late.was_cancelled
    assert (await service.fetch(answer["item"]["id"]))["content"] == "Fact at 10"
    assert "Similar memories could not be looked up: TimeoutError" in caplog.messages


class BrokenMemories(InMemoryMemories):
    """The fake, where no search succeeds."""

    error: Exception

    async def nearest(self, question: Question, limit: int) -> list[Candidate]:
        raise self.error


@pytest.mark.parametrize(
    "error", [Unavailable("The store is away."), TimedOut("Too slow."), RuntimeError("a secret of the store")]
)
async def test_a_lookup_that_fails_fails_no_save_and_is_logged(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    memories = BrokenMemories(InMemoryEvents())
    memories.error = error
    service = over(memories)
    answer = await saved(service, "Fact at 10")
    assert answer["write_status"] == "created"
    assert "similar" not in answer
    [record] = [record for record in caplog.records if "Similar memories" in record.getMessage()]
    assert record.levelno == (logging.WARNING if isinstance(error, MetaCortexError) else logging.ERROR)


class RefusingMemories(LateMemories):
    """The fake, where every commit fails."""

    async def save(self, new: NewMemory, fingerprint: Fingerprint, event: Event) -> bool:
        self.committed.set()
        await self.searching.wait()
        raise Unavailable("The store is away.")


async def test_a_save_that_fails_ends_its_lookup() -> None:
    memories = RefusingMemories(InMemoryEvents())
    memories.prepare()
    memories.never = True
    service = over(memories)
    with pytest.raises(Exception, match="The store is away"):
        await service.save("Fact at 10")
    assert memories.was_cancelled
