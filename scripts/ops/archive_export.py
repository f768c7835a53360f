"""Writing an archive: every document of a collection as it was at one moment, page by page."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from google.api_core.exceptions import FailedPrecondition, InvalidArgument
from google.cloud.firestore_v1.async_client import AsyncClient

from metacortex.adapters.firestore_client import RETRY, answering
from metacortex.adapters.firestore_memories import ID
from metacortex.adapters.firestore_spaces import FirestoreSpaces
from metacortex.errors import Unavailable
from metacortex.spaces import CollectionSpaces
from ops.archive_folder import Folder, Manifest, Source, Spaces
from ops.archive_lines import Archived, archived, keepable
from ops.paging import pages
from ops.place import Place, connect
from ops.processes import OpsError
from ops.progress import Tell

# Few enough that even the largest documents fit into the memory of a small machine.
PAGE = 100


@dataclass(frozen=True, kw_only=True)
class Export:
    """What to archive, and where."""

    place: Place
    folder: Folder
    force: bool


async def export(plan: Export, tell: Tell) -> Manifest:
    """Write the archive, and tell what it is.

    Raises OpsError where it cannot be written or may not replace the one that is there, and MetaCortexError where the store
    fails. Whatever ends it early, the folder is as it was.
    """
    place, folder = plan.place, plan.folder
    folder.require_replaceable(place, force=plan.force)
    client = connect(place.project)
    spaces = FirestoreSpaces(client, place.collection)
    async with answering():
        snapshot = await spaces.document.get(retry=RETRY)
    named, moment = spaces.remember(snapshot), snapshot.read_time
    memories = _Memories(client, place.collection, named, moment)
    if not await memories.any():
        raise OpsError(f"{place} holds no memories; check --project and --collection.")
    with folder.replaced(_source(place, named, moment), force=plan.force) as new:
        await memories.read(new.add, tell)
    manifest = folder.manifest()
    assert manifest is not None
    return manifest


def _source(place: Place, named: CollectionSpaces | None, moment: datetime) -> Source:
    return Source(
        # Never of the future, however the clock of the store goes.
        created_at=min(datetime.fromtimestamp(moment.timestamp(), UTC), datetime.now(UTC)),
        project=place.project,
        emulator=place.emulator,
        collection=place.collection,
        embedding_space=Spaces(current=named.current, spaces=named.fields) if named else None,
    )


class _Memories:
    """The memories of a collection at one moment, which Firestore remembers for an hour."""

    def __init__(self, client: AsyncClient, collection: str, named: CollectionSpaces | None, moment: datetime) -> None:
        self._collection = client.collection(collection)
        self._query = self._collection.order_by(ID)
        self._vector_fields = frozenset(named.fields.values()) if named else frozenset[str]()
        self._moment = moment

    async def any(self) -> bool:
        async with answering():
            return bool(await self._query.select([]).limit(1).get(retry=RETRY, read_time=self._moment))

    async def read(self, take: Callable[[Archived], None], tell: Tell) -> None:
        """Gives every memory, by id, and keeps none."""
        found = 0
        try:
            with keepable(self._collection.id):
                async for page in pages(self._query, PAGE, read_time=self._moment):
                    for snapshot in page:
                        take(archived(snapshot.id, snapshot.to_dict() or {}, self._vector_fields))
                    found += len(page)
                    tell("Reading memories", found, None)
        except (InvalidArgument, Unavailable) as error:
            if isinstance(error, Unavailable) and not isinstance(error.__cause__, FailedPrecondition):
                raise
            raise OpsError(_TOO_LATE) from error


_TOO_LATE = (
    "Firestore no longer knows the moment at which reading began: without point-in-time recovery it remembers one hour."
    " Nothing was replaced. Run this from a machine that is nearer to the database, or switch that recovery on with"
    " `gcloud firestore databases update --enable-pitr --project PROJECT`, which lets a reading take seven days."
)
