"""Which of several memories is newer, as every way to merge them sees it."""

from collections.abc import Sequence

from metacortex.memory import Memory


def oldest_first(sources: Sequence[Memory]) -> list[Memory]:
    """By date, those without one first. Of those that hold since the same moment, the one saved earlier counts as older."""

    def age(memory: Memory) -> tuple[bool, int, int]:
        date = memory.metadata.date
        return date is not None, date or 0, memory.metadata.created_at or 0

    return sorted(sources, key=age)
