"""save_context, as a client sees it."""

from builders import Service


async def test_a_saved_memory_is_found_and_fetched(service: Service) -> None:
    item = await service.save("The cat is called Minka, at 10")
    [match] = await service.search("at 12")
    assert match["id"] == item["id"]
    assert await service.fetch(item["id"]) == item
