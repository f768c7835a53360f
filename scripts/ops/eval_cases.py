"""The cases in Firestore: `retrieval_eval_cases`, and which of them count in `retrieval_eval_cases_meta/PARTITION`.

A partition is replaced as a whole: its new cases are written under a new generation, then one document names that
generation, then the old cases are removed. A reader sees all of the old or all of the new.
"""

import hashlib
import json
import uuid
from dataclasses import dataclass
from typing import Any

from google.api_core.exceptions import AlreadyExists, FailedPrecondition, NotFound
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.async_document import AsyncDocumentReference
from google.cloud.firestore_v1.base_document import DocumentSnapshot
from google.cloud.firestore_v1.base_query import FieldFilter

from metacortex.adapters.firestore_client import RETRY, answering
from metacortex.memory import BranchState, Origin
from ops.eval_plan import Partition
from ops.processes import OpsError

COLLECTION = "retrieval_eval_cases"
BATCH = 200
ATTEMPTS = 5


@dataclass(frozen=True, kw_only=True)
class Case:
    """A search, and the ids of the memories that answer it; none where nothing does."""

    query: str
    positive_ids: tuple[str, ...]
    category: str
    topic: str | None = None
    state: BranchState | None = None
    origin: Origin | None = None
    valid_at: int | None = None

    @property
    def filters(self) -> dict[str, Any]:
        """The filters that are set, as search_context calls them; `valid_at` in epoch milliseconds."""
        named = {
            "filter_topic": self.topic,
            "filter_state": self.state,
            "filter_origin": self.origin,
            "valid_at": self.valid_at,
        }
        return {name: value for name, value in named.items() if value is not None}

    @property
    def key(self) -> str:
        """The same for the same search, in every generation and every run."""
        asked = json.dumps([self.query, self.filters], ensure_ascii=False, sort_keys=True)
        return hashlib.sha256(asked.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class CaseSet:
    """The cases of a partition, in their order, and what they were made from."""

    source: str
    cases: tuple[Case, ...]
    corpus: str | None = None
    """The load that made the isolated memories they are about; None for live memories."""
    revision: Any = None
    """What a replacement checks that nobody else has replaced them; None where there were none."""


class CaseStore:
    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._collection = client.collection(COLLECTION)

    async def read(self, partition: Partition) -> CaseSet | None:
        """The cases of a partition, all of one generation; None where it has none."""
        for _ in range(ATTEMPTS):
            async with answering():
                current = await self._current(partition).get(retry=RETRY)
            if not current.exists:
                return None
            named = current.to_dict() or {}
            cases = await self._of(named["generation"])
            # Fewer: another generation took their place in the meantime.
            if len(cases) == named["case_count"]:
                return CaseSet(
                    source=named["source"], corpus=named.get("corpus"), cases=cases, revision=current.update_time
                )
        raise OpsError("The evaluation cases are being replaced at this moment; run the same command again.")

    async def replace(self, partition: Partition, new: CaseSet, now: int) -> None:
        """Puts new cases in the place of those whose revision `new` carries.

        Raises OpsError, and leaves what there is, where others were put there since they were read.
        """
        generation = uuid.uuid4().hex
        for start in range(0, len(new.cases), BATCH):
            batch = self._client.batch()
            for position, case in enumerate(new.cases[start : start + BATCH], start):
                document = self._collection.document(f"{generation}-{position:05}")
                batch.set(document, _encode(case) | _place(partition, generation, position))
            async with answering():
                await batch.commit(retry=RETRY)
        await self._name(partition, generation, new, now)
        await self._remove_others(partition, generation)

    def _current(self, partition: Partition) -> AsyncDocumentReference:
        return self._client.collection(f"{COLLECTION}_meta").document(partition)

    async def _of(self, generation: str) -> tuple[Case, ...]:
        async with answering():
            found = await self._collection.where(filter=FieldFilter("generation", "==", generation)).get(retry=RETRY)
        return tuple(_decode(snapshot) for snapshot in sorted(found, key=_position))

    async def _name(self, partition: Partition, generation: str, new: CaseSet, now: int) -> None:
        fields = {
            "generation": generation,
            "case_count": len(new.cases),
            "source": new.source,
            "corpus": new.corpus,
            "written_at": now,
        }
        batch = self._client.batch()
        if new.revision is None:
            batch.create(self._current(partition), fields)
        else:
            unchanged = self._client.write_option(last_update_time=new.revision)
            batch.update(self._current(partition), fields, option=unchanged)
        async with answering():
            try:
                await batch.commit(retry=RETRY)
            except (AlreadyExists, FailedPrecondition, NotFound):
                raise OpsError(
                    f"Another command replaced the {partition} cases at the same time, and those stay; run this again."
                ) from None

    async def _remove_others(self, partition: Partition, generation: str) -> None:
        query = self._collection.where(filter=FieldFilter("partition", "==", partition)).select(["generation"])
        async with answering():
            found = await query.get(retry=RETRY)
        old = [snapshot.reference for snapshot in found if snapshot.get("generation") != generation]
        for start in range(0, len(old), BATCH):
            batch = self._client.batch()
            for reference in old[start : start + BATCH]:
                batch.delete(reference)
            async with answering():
                await batch.commit(retry=RETRY)


def _place(partition: Partition, generation: str, position: int) -> dict[str, Any]:
    return {"partition": partition, "generation": generation, "position": position}


def _encode(case: Case) -> dict[str, Any]:
    return {
        "key": case.key,
        "query": case.query,
        "positive_ids": list(case.positive_ids),
        "category": case.category,
        **case.filters,
    }


def _decode(snapshot: DocumentSnapshot) -> Case:
    stored = snapshot.to_dict() or {}
    return Case(
        query=stored["query"],
        positive_ids=tuple(stored["positive_ids"]),
        category=stored["category"],
        topic=stored.get("filter_topic"),
        state=BranchState(stored["filter_state"]) if "filter_state" in stored else None,
        origin=Origin(stored["filter_origin"]) if "filter_origin" in stored else None,
        valid_at=stored.get("valid_at"),
    )


def _position(snapshot: DocumentSnapshot) -> int:
    return snapshot.get("position")
