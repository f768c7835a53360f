"""Which of several memories is newer, as every way to merge them sees it."""

from collections.abc import Sequence

from metacortex.memory import Memory


def date_of(memory: Memory) -> int | None:
    """Since when a memory holds, as far as it says: valid_from, else the time it was saved; None where neither is known."""
    metadata = memory.metadata
    return metadata.created_at if metadata.valid_from is None else metadata.valid_from


def oldest_first(sources: Sequence[Memory]) -> list[Memory]:
    """By date, those without one first. Of those that hold since the same moment, the one saved earlier counts as older."""

    def age(memory: Memory) -> tuple[bool, int, int]:
        date = date_of(memory)
        return date is not None, date or 0, memory.metadata.created_at or 0

    return sorted(sources, key=age)
