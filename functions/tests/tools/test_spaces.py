"""Embedding spaces: vectors of different models are never compared, whatever the configuration says."""

import asyncio

import pytest

from builders import Service, ToolError, plane_models
from fakes import InMemoryEvents, InMemoryMemories, PlaneEmbedder
from metacortex.bootstrap import Stores
from metacortex.spaces import CollectionSpaces, Space


def with_space(stores: Stores, space: Space) -> Service:
    """Another process over the same collection, configured for a space."""
    return Service(stores=stores, models=plane_models(embedder=PlaneEmbedder(space)))


@pytest.mark.parametrize(
    "other", [Space("plane", 3, "plain"), Space("sphere", 2, "plain"), Space("plane", 2, "titled")]
)
async def test_another_model_size_or_form_neither_writes_nor_searches(service: Service, other: Space) -> None:
    item = await service.save("Fact at 10")
    changed = with_space(service.stores, other)
    for call in (changed.save("New at 10"), changed.search("at 10")):
        with pytest.raises(ToolError) as error:
            await call
        assert (error.value.status, error.value.code) == (503, "embedding_space_mismatch")
        assert all(word in error.value.message for word in ("plane@2/plain", other.id, "configure"))
    assert changed.models.embedder.calls == []  # pyright: ignore[reportAttributeAccessIssue]
    assert isinstance(service.stores.memories, InMemoryMemories)
    assert set(service.stores.memories.stored) == {item["id"]}
    assert await changed.fetch(item["id"]) == item


async def test_a_service_works_in_the_listed_space_of_its_model_and_its_field(service: Service) -> None:
    memories = service.stores.memories
    assert isinstance(memories, InMemoryMemories)
    listed = {"sphere@2/plain": "embedding", "plane@2/plain": "embedding_2"}
    memories.named = CollectionSpaces("sphere@2/plain", listed)
    item = await service.save("Fact at 10")
    assert memories.stored[item["id"]].embedding.vector_field == "embedding_2"
    assert [match["id"] for match in await service.search("at 10")] == [item["id"]]
    assert await with_space(service.stores, Space("sphere", 2, "plain")).search("at 10") == []


async def test_the_collection_decides_the_form_of_the_text(service: Service) -> None:
    embedder = TwoForms()
    await service.save("Fact at 10")
    await Service(stores=service.stores, models=plane_models(embedder=embedder)).search("at 10")
    assert embedder.forms == ["plain"]


class TwoForms(PlaneEmbedder):
    """Knows two forms of text, and remembers in which it was asked for queries."""

    def __init__(self) -> None:
        super().__init__(Space("plane", 2, "titled"))
        self.known_formats = ("titled", "plain")
        self.forms: list[str] = []
        self.asked = asyncio.Event()

    async def embed_query(self, text: str, *, text_format: str) -> tuple[float, ...]:
        self.forms.append(text_format)
        self.asked.set()
        return await super().embed_query(text, text_format=text_format)


async def test_a_search_follows_a_collection_that_moves_to_another_space(service: Service) -> None:
    memories = service.stores.memories
    assert isinstance(memories, InMemoryMemories)
    await service.save("Fact at 10")
    embedder = TwoForms()
    other = Service(stores=service.stores, models=plane_models(embedder=embedder))
    assert len(await other.search("at 10")) == 1
    memories.named = CollectionSpaces("plane@2/titled", {"plane@2/titled": "embedding_2"})
    assert await other.search("at 10") == []
    assert embedder.forms == ["plain", "titled"]


async def test_a_space_that_was_known_is_looked_up_again_beside_the_embedding(service: Service) -> None:
    embedder = TwoForms()

    class WaitingForTheModel(InMemoryMemories):
        waits = False

        async def spaces(self) -> CollectionSpaces | None:
            if self.waits:
                async with asyncio.timeout(10):
                    await embedder.asked.wait()
            return await super().spaces()

    memories = WaitingForTheModel(InMemoryEvents())
    models = plane_models(embedder=embedder)
    service = Service(stores=Stores(memories=memories, events=memories.events), models=models)
    await service.save("Fact at 10")
    embedder.asked.clear()
    memories.waits = True
    assert len(await service.search("at 10")) == 1


async def test_a_first_save_never_mixes_forms_of_text_and_works_when_it_is_repeated() -> None:
    class NamedMeanwhile(InMemoryMemories):
        async def name_space(self, spaces: CollectionSpaces) -> CollectionSpaces:
            return await super().name_space(CollectionSpaces.only(Space("plane", 2, "plain")))

    memories = NamedMeanwhile(InMemoryEvents())
    embedder = PlaneEmbedder(Space("plane", 2, "titled"))
    embedder.known_formats = ("titled", "plain")
    models = plane_models(embedder=embedder)
    service = Service(stores=Stores(memories=memories, events=memories.events), models=models)
    with pytest.raises(ToolError, match="the same call works now"):
        await service.save("Fact at 10")
    assert memories.stored == {}
    item = await service.save("Fact at 10")
    assert memories.stored[item["id"]].embedding.space_id == "plane@2/plain"


async def test_first_saves_at_once_agree_on_one_space(firestore_stores: Stores) -> None:
    services = [Service(stores=firestore_stores) for _ in range(5)]
    saves = [service.save(f"Fact {i} at {i}") for i, service in enumerate(services * 5)]
    assert len({item["id"] for item in await asyncio.gather(*saves)}) == 25
    assert await firestore_stores.memories.spaces() == CollectionSpaces.only(Space("plane", 2, "plain"))
    assert len(await services[0].search("at 10", limit=20)) == 20


async def test_a_space_named_by_another_first_save_meanwhile_is_obeyed() -> None:
    class NamedMeanwhile(InMemoryMemories):
        async def name_space(self, spaces: CollectionSpaces) -> CollectionSpaces:
            return await super().name_space(CollectionSpaces.only(Space("sphere", 2, "plain")))

    memories = NamedMeanwhile(InMemoryEvents())
    with pytest.raises(ToolError) as error:
        await Service(stores=Stores(memories=memories, events=memories.events)).save("Fact at 10")
    assert error.value.code == "embedding_space_mismatch"
    assert memories.stored == {}
