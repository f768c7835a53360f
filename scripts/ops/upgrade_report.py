"""What an upgrade is to do, and what it found and did: for a person, and as JSON."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from metacortex.spaces import Space
from ops.place import Place

SHOWN_IDS = 3


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Whose documents to bring to today's schema, and whether to write at all."""

    where: Place
    space: Space
    write: bool


@dataclass(frozen=True, kw_only=True)
class Vectors:
    """What a sample of vectors showed. `shortest` and `longest` are lengths (Euclidean norms)."""

    looked_at: int
    unusable: tuple[str, ...]
    """The ids of memories that no search finds: they have no vector, or one without direction."""
    shortest: float
    longest: float
    least_cosine: float | None = None
    """How near the stored vectors of a few texts are to those the model makes of them; None where that was not asked."""


@dataclass
class Tally:
    """The documents of one collection: how many there are, how many lack something, how many of these were written."""

    found: int = 0
    lacking: int = 0
    written: int = 0


@dataclass
class Report:
    """What an upgrade found and did, as far as it came."""

    plan: Plan
    names_space: bool = False
    """Whether the collection named the space before."""
    vectors: Vectors | None = None
    tallies: dict[str, Tally] = field(default_factory=dict[str, Tally])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """Documents that the store does not take with what they lack: by their paths, why."""
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it did all that it was asked to."""
        return self.error is None and not self.refused

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing to do, or was not before."""
        return self.names_space and not any(tally.lacking for tally in self.tallies.values())

    def as_json(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "ok": self.ok,
            "project": plan.where.project,
            "emulator": plan.where.emulator,
            "collection": plan.where.collection,
            "space": plan.space.id,
            "write": plan.write,
            "named_before": self.names_space,
            "vectors": asdict(self.vectors) if self.vectors else None,
            "documents": {name: asdict(tally) for name, tally in self.tallies.items()},
            "refused": self.refused,
            "error": self.error,
        }

    def lines(self) -> Iterator[str]:
        """What there is to tell of an upgrade that did not fail."""
        plan = self.plan
        yield str(plan.where)
        yield _line("space", self._space())
        if self.vectors:
            yield _line("vectors", " ".join(_about(self.vectors, plan.space)))
        for name, tally in self.tallies.items():
            done = f"{tally.written:,} written" if plan.write else f"{tally.lacking:,} lack something"
            yield _line(name, f"{tally.found:,} found, {done}")
        for path, reason in list(self.refused.items())[:SHOWN_IDS]:
            yield _line("refused", f"{path}: the store does not take it: {reason}")
        yield self._end()

    def _space(self) -> str:
        if self.names_space:
            return f"{self.plan.space.id}, which the collection names already"
        return f"{self.plan.space.id}, which the collection {'now names' if self.plan.write else 'does not name yet'}"

    def _end(self) -> str:
        if self.is_complete:
            return "Nothing to do: every document has what today's schema wants."
        if self.refused:
            count = (
                "1 document, which stays as it was"
                if len(self.refused) == 1
                else f"{len(self.refused):,} documents, which stay"
            )
            return f"The upgrade is complete but for {count}."
        if self.plan.write:
            return "The upgrade is complete."
        return "Nothing was written. To do it, run the same command with --write."


def _about(vectors: Vectors, space: Space) -> Iterator[str]:
    yield (
        f"{vectors.looked_at:,} looked at: {space.dimensions:,} dimensions, lengths from {vectors.shortest:.3g} to"
        f" {vectors.longest:.3g}."
    )
    if vectors.unusable:
        shown = ", ".join(vectors.unusable[:SHOWN_IDS])
        yield f"{len(vectors.unusable):,} of them cannot be compared, so no search finds these memories: {shown}."
    if vectors.least_cosine is None:
        yield f"That {space.model} made them is taken from --space; add --verify to try it."
    else:
        yield f"{space.model} makes the same vectors of a few of these texts (least cosine {vectors.least_cosine:.3f})."


def _line(name: str, text: str) -> str:
    return f"  {name:<22}  {text}"
