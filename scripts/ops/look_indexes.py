"""Which of the indexes and TTL policies that a collection needs are there, as gcloud lists them."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from metacortex.spaces import CollectionSpaces, Space
from ops.indexes import needed
from ops.place import Place
from ops.preflight_programs import run
from ops.processes import OpsError

SECONDS = 30.0
READY = {"READY", "ACTIVE"}

Key = tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """The indexes, or the TTL policies, of a collection: how many there must be, and which are missing or being made."""

    needed: int
    missing: tuple[str, ...]
    unfinished: tuple[str, ...]


@dataclass(frozen=True)
class Indexes:
    """What can be told of them; `unseen` says why nothing can."""

    indexes: Kind | None = None
    ttl: Kind | None = None
    unseen: str | None = None


async def indexes(where: Place, spaces: CollectionSpaces | None) -> Indexes:
    """The state of what every space of a collection needs."""
    if where.emulator:
        return Indexes(unseen="cannot be seen in the emulator, which needs no index and deletes nothing")
    try:
        made = await _gcloud(where, "indexes", "composite", "list")
        policies = await _gcloud(where, "fields", "ttls", "list")
        return Indexes(
            indexes=_kind(_needed_indexes(where, spaces), {_key_of_made(each): _state(each) for each in made}),
            ttl=_kind(_needed_policies(where), {_policy_of_made(each): _ttl_state(each) for each in policies}),
        )
    except OpsError as error:
        return Indexes(unseen=str(error))
    except (ValueError, TypeError, KeyError, AttributeError):
        return Indexes(unseen="gcloud did not answer with a list; update it with `gcloud components update`.")


async def _gcloud(where: Place, *command: str) -> list[dict[str, Any]]:
    try:
        ended = await run(
            ("gcloud", "firestore", *command, f"--project={where.project}", "--format=json", "--quiet"), seconds=SECONDS
        )
    except FileNotFoundError:
        raise OpsError("gcloud is not installed, or not on PATH; indexes are not looked at.") from None
    except TimeoutError:
        raise OpsError(f"gcloud did not answer within {SECONDS:g} seconds; indexes are not looked at.") from None
    if ended.exit_code:
        raise OpsError(
            f"gcloud cannot list them; see what `gcloud firestore {' '.join(command)} --project {where.project}` says."
        )
    return json.loads(ended.out)


def _kind(wanted: Iterable[Key], found: Mapping[Key, str]) -> Kind:
    keys = tuple(wanted)
    return Kind(
        needed=len(keys),
        missing=tuple(" ".join(key) for key in keys if key not in found),
        unfinished=tuple(" ".join(key) for key in keys if key in found and found[key] not in READY),
    )


def _needed_indexes(where: Place, spaces: CollectionSpaces | None) -> dict[Key, None]:
    """Each index once, whichever space needs it."""
    sizes = {
        field: space.dimensions
        for space_id, field in (spaces.fields if spaces else {}).items()
        if (space := Space.parse(space_id))
    }
    wanted = (index for field, size in sizes.items() for index in needed(where.collection, size, field)["indexes"])
    return {(index["collectionGroup"], *_fields(index["fields"])): None for index in wanted}


def _needed_policies(where: Place) -> dict[Key, None]:
    overrides = needed(where.collection, 1, "")["fieldOverrides"]
    return {(each["collectionGroup"], each["fieldPath"]): None for each in overrides if each.get("ttl")}


def _key_of_made(index: Mapping[str, Any]) -> Key:
    return (_part_of(index["name"], "collectionGroups"), *_fields(index["fields"]))


def _policy_of_made(field: Mapping[str, Any]) -> Key:
    return (_part_of(field["name"], "collectionGroups"), _part_of(field["name"], "fields").strip("`"))


def _part_of(name: str, kind: str) -> str:
    """What follows a kind in a resource's name, such as projects/P/databases/D/collectionGroups/NAME/indexes/ID."""
    parts = name.split("/")
    return parts[parts.index(kind) + 1]


def _fields(fields: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """The fields as words. Where vectors are ranked, Firestore adds the name of the document, which says nothing."""
    listed = list(fields)
    has_vector = any("vectorConfig" in field for field in listed)
    for field in listed:
        if "vectorConfig" in field:
            yield f"{field['fieldPath']}:{field['vectorConfig']['dimension']}"
        elif not (has_vector and field["fieldPath"] == "__name__"):
            yield f"{field['fieldPath']}:{field['order'].lower()}"


def _state(index: Mapping[str, Any]) -> str:
    return str(index["state"])


def _ttl_state(field: Mapping[str, Any]) -> str:
    return str(field["ttlConfig"]["state"])


def shown(kind: Kind) -> str:
    """How many are there, and what is not."""
    if not kind.needed:
        return "not looked at: the collection names no space yet, which the first save does"
    ready = kind.needed - len(kind.missing) - len(kind.unfinished)
    faults = Counter({"missing": len(kind.missing), "still being made": len(kind.unfinished)})
    told = [f"{ready} of {kind.needed} are ready", *(f"{count} {fault}" for fault, count in faults.items() if count)]
    names = (*kind.missing, *kind.unfinished)
    return ", ".join(told) + (f": {'; '.join(names)}" if names else "")
