"""What calls cost in Firestore, by the platform's published rules and what metacortex asks for. Pure arithmetic, no measurement.

Reads: one for each document that a query returns, one for each 100 entries of a vector index that it scans, one for each
1,000 index entries that a count matches, and at least one for each query
(https://firebase.google.com/docs/firestore/pricing). A vector index is flat: a search scans what its filters leave.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from metacortex.fusion import LEXICAL_CANDIDATES
from metacortex.service import SIMILAR
from metacortex.settings import Settings
from metacortex.terms import COUNTED

VECTOR_ENTRIES_A_READ = 100
COUNTED_ENTRIES_A_READ = 1_000
DAYS = 30
# Dollars, from a copy of https://firebase.google.com/docs/firestore/pricing, for regions such as us-west1.
# Those of nam5 are twice as high.
READ, WRITE, DELETE = 0.03 / 100_000, 0.09 / 100_000, 0.01 / 100_000
GIB_MONTH = 0.15
FREE_A_DAY: Mapping[str, int] = {"reads": 50_000, "writes": 20_000}
# A vector of 768 in the document and in four indexes, and 100 words of two index entries each, by
# https://firebase.google.com/docs/firestore/storage-size.
BYTES_A_MEMORY = 60_000
# Where nothing is known of a corpus: a word of a query stands in one memory of a hundred, a topic has a tenth of all.
WORD_SHARE = 0.01
TOPIC_SHARE = 0.1
LISTED = 20
MERGED = 20


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The memories that a search looks through, those of one state, and the parts of the long ones."""

    memories: int
    parts: int


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Documents read and written, for one call or for many. Every write of an event is deleted again when it expires."""

    reads: float
    writes: float
    deletes: float

    def times(self, count: float) -> "Cost":
        return Cost(reads=self.reads * count, writes=self.writes * count, deletes=self.deletes * count)

    def plus(self, other: "Cost") -> "Cost":
        return Cost(
            reads=self.reads + other.reads, writes=self.writes + other.writes, deletes=self.deletes + other.deletes
        )

    @property
    def dollars(self) -> float:
        """Without the free quota."""
        return self.reads * READ + self.writes * WRITE + self.deletes * DELETE


NOTHING = Cost(reads=0, writes=0, deletes=0)
# One event, which its TTL policy deletes.
EVENT = Cost(reads=0, writes=1, deletes=1)


def costs(corpus: Corpus) -> dict[str, Cost]:
    """What one call of each tool costs, and one refused request, at most and where it succeeds."""
    parts_each = corpus.parts / max(1, corpus.memories)
    fingerprint = Cost(reads=1, writes=1, deletes=1)
    return {
        "save_context": EVENT.plus(fingerprint).plus(
            Cost(reads=_similar_reads(corpus), writes=1 + parts_each, deletes=0)
        ),
        "search_context": EVENT.plus(Cost(reads=_search_reads(corpus), writes=0, deletes=0)),
        "fetch_context": EVENT.plus(Cost(reads=1, writes=0, deletes=0)),
        "list_context": EVENT.plus(Cost(reads=LISTED + 1, writes=0, deletes=0)),
        "deprecate_context": EVENT.plus(Cost(reads=2, writes=1 + parts_each, deletes=0)),
        "consolidate_context": EVENT.plus(Cost(reads=MERGED + 2, writes=(MERGED + 1) * (1 + parts_each), deletes=0)),
        "refused": EVENT,
    }


def _search_reads(corpus: Corpus) -> int:
    words = min(corpus.memories, LEXICAL_CANDIDATES)
    counts = COUNTED * max(1, math.ceil(corpus.memories * WORD_SHARE / COUNTED_ENTRIES_A_READ))
    nearest = sum(_nearest_reads(size, Settings.retrieval_candidates) for size in (corpus.memories, corpus.parts))
    # The space is read once in 30 seconds at most.
    return 1 + counts + words + nearest


def _similar_reads(corpus: Corpus) -> int:
    return 1 + _nearest_reads(math.ceil(corpus.memories * TOPIC_SHARE), SIMILAR + 1)


def _nearest_reads(entries: int, limit: int) -> int:
    return max(1, min(limit, entries) + math.ceil(entries / VECTOR_ENTRIES_A_READ))


# --- The page of scaling ---

SIZES = (1_000, 10_000, 100_000, 1_000_000)
# One memory in ten is long, with four parts.
PARTS_EACH = 0.4
A_DAY: Mapping[str, int] = {"search_context": 100, "save_context": 20, "fetch_context": 50}


def table() -> Iterator[str]:
    """The reads and the price at several sizes, as docs/OPERATIONS.md shows them."""
    columns = (
        "active memories",
        "reads of a search",
        "of a save",
        "of a fetch",
        "1,000 searches",
        "a month",
        "storage a month",
    )
    yield f"| {' | '.join(columns)} |"
    yield "|---|---|---|---|---|---|---|"
    for size in SIZES:
        each = costs(Corpus(memories=size, parts=int(size * PARTS_EACH)))
        reads = (f"{each[tool].reads:,.0f}" for tool in ("search_context", "save_context", "fetch_context"))
        month = NOTHING
        for tool, calls in A_DAY.items():
            month = month.plus(each[tool].times(calls * DAYS))
        storage = size * BYTES_A_MEMORY / 2**30 * GIB_MONTH
        dollars = (1_000 * each["search_context"].reads * READ, month.dollars, storage)
        yield f"| {size:,} | {' | '.join(reads)} | {' | '.join(f'${each:,.2f}' for each in dollars)} |"
