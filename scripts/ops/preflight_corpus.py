"""The live collection of memories: whether this deployment could go on with it, and whether it could be restored."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from google.auth.exceptions import GoogleAuthError

from metacortex.adapters.firestore_client import answering, create_client
from metacortex.adapters.firestore_memories import FirestoreMemories
from metacortex.bootstrap import models
from metacortex.errors import MetaCortexError
from metacortex.settings import REGION, Settings
from metacortex.spaces import FIRST_VECTOR_FIELD, CollectionSpaces, unnamed_space, working_space
from ops.archive_folder import Folder
from ops.indexes import needed
from ops.place import Place, place_of
from ops.preflight_checkout import index_file
from ops.preflight_plan import Deployment
from ops.preflight_report import check, faulty
from ops.processes import OpsError

ARCHIVE_AGE = timedelta(days=3)


@dataclass(frozen=True)
class Collection:
    """The live collection, as far as a deployment is concerned."""

    name: str
    spaces: CollectionSpaces | None
    is_empty: bool
    """Whether it holds no memory, or does not exist."""


async def read_collection(deployment: Deployment, settings: Awaitable[Settings]) -> Collection:
    """The live collection, read as whoever `gcloud auth application-default login` made us. Raises OpsError."""
    name = (await settings).memory_collection
    try:
        async with answering():
            # Looking for credentials blocks, for seconds where there are none.
            client = await asyncio.to_thread(create_client, deployment.project)
        memories = FirestoreMemories(client, name)
        spaces, is_empty = await asyncio.gather(memories.spaces(), memories.is_empty())
    except MetaCortexError as error:
        raise OpsError(_unreadable(deployment.project, error)) from error
    return Collection(name, spaces, is_empty)


@check("dimensions")
async def dimensions(deployment: Deployment, settings: Awaitable[Settings], live: Awaitable[Collection]) -> str:
    """The index file, the settings and the live collection agree about the space of the vectors."""
    configured = await settings
    embedder = models(configured, deployment.project).embedder
    faults: list[str] = []
    field = FIRST_VECTOR_FIELD
    found = ""
    try:
        collection = await live
        if collection.spaces is not None:
            working = working_space(collection.spaces, embedder.space, embedder.known_formats)
            field = working.vector_field
            found = f"{collection.name} is in the space {working.space.id}"
        elif collection.is_empty:
            found = f"{collection.name} does not exist yet; its first memory will name the space {embedder.space.id}"
        else:
            raise unnamed_space(embedder.space)
    except (OpsError, MetaCortexError) as error:
        faults.append(str(error))
    faults += _index_faults(deployment.root, configured, field)
    faulty(faults)
    return f"{found}; settings and indexes agree with it."


@check("archive")
async def archived(deployment: Deployment, settings: Awaitable[Settings], live: Awaitable[Collection]) -> str:
    """There is a whole archive of the live collection, not older than three days, unless there is nothing to archive."""
    place = place_of(deployment.project, (await settings).memory_collection)
    try:
        made = await asyncio.to_thread(_archive_time, deployment, place)
    except OpsError as error:
        if await _is_empty(live):
            return f"{place.collection} holds no memories; there is nothing to archive."
        named = "" if place.collection == Settings.memory_collection else f" --collection {place.collection}"
        command = f"./scripts/metacortex archive export DIR --project {place.project}{named}"
        raise OpsError(f"{error} Make one with `{command}`, and name it with --archive DIR.") from error
    return f"The archive in {deployment.archive} is whole, and of {made:%Y-%m-%d %H:%M} UTC."


async def _is_empty(live: Awaitable[Collection]) -> bool:
    try:
        return (await live).is_empty
    except OpsError:
        # That it cannot be read is told by another check.
        return False


def _archive_time(deployment: Deployment, place: Place) -> datetime:
    """When the archive was made, if it is a whole one of this place and not too old; raises OpsError otherwise."""
    if deployment.archive is None:
        raise OpsError("Before a deployment memories need an archive.")
    with Folder(deployment.archive).opened() as archive:
        if not archive.manifest.is_of(place):
            raise OpsError(f"The archive in {deployment.archive} is of {archive.manifest.place}, not of {place}.")
        archive.require_whole(lambda *_: None)
    made = archive.manifest.created_at
    age = deployment.now - made
    if age < timedelta(0):
        raise OpsError(f"The archive in {deployment.archive} is of the future; set the clock.")
    if age > ARCHIVE_AGE:
        raise OpsError(
            f"The archive in {deployment.archive} is {age.days} days old, and may not be older than {ARCHIVE_AGE.days}."
        )
    return made.astimezone(UTC)


def _index_faults(root: Path, settings: Settings, field: str) -> list[str]:
    collection, size = settings.memory_collection, settings.gemini_embedding_dimensions
    name, held = index_file(root)
    wanted = needed(collection, size, field)
    missing = sum(
        not any(_holds(entry, each) for entry in held.get(kind, []))
        for kind, entries in wanted.items()
        for each in entries
    )
    if not missing:
        return []
    others = _sizes(held, collection, field) - {size}
    indexed = f", and indexes {', '.join(map(str, sorted(others)))} where {size} are configured" if others else ""
    command = f"./scripts/metacortex indexes --collection {collection} --dimensions {size} --field {field}"
    entries = "1 entry" if missing == 1 else f"{missing} entries"
    fault = (
        f"{name} lacks {entries} for {collection} with vectors of {size} dimensions in {field}{indexed}; put in what"
        f" `{command}` prints, and commit it."
    )
    return [fault]


def _holds(entry: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether an entry says all that is wanted of it; Firebase writes more into its own."""
    return all(entry.get(key) == value for key, value in wanted.items())


def _sizes(held: dict[str, Any], collection: str, field: str) -> set[int]:
    """The sizes of the vectors that a file indexes in a field."""
    return {
        part["vectorConfig"]["dimension"]
        for index in held.get("indexes", [])
        if index.get("collectionGroup") == collection
        for part in index.get("fields", [])
        if part.get("fieldPath") == field and "vectorConfig" in part
    }


def _unreadable(project: str, error: MetaCortexError) -> str:
    cause = error.__cause__
    code, said = getattr(cause, "code", None), str(cause)
    if isinstance(cause, GoogleAuthError) or code == 401 or "metadata from plugin failed" in said:
        return "Firestore cannot be read without credentials; run `gcloud auth application-default login`, then this again."
    if "has not been used in project" in said or "SERVICE_DISABLED" in said:
        switch_on = f"gcloud services enable firestore.googleapis.com --project {project}"
        return f"Firestore is not switched on in {project}; run `{switch_on}`."
    if code == 403:
        return (
            f"Your application default credentials may not read Firestore in {project}; have its owner grant them"
            " roles/datastore.viewer, or log in as another with `gcloud auth application-default login`."
        )
    if code == 404:
        return (
            f"{project} has no Firestore database; run"
            f' `firebase firestore:databases:create "(default)" --location {REGION} --project {project}`.'
        )
    return f"Firestore could not be read. {error.message}"
