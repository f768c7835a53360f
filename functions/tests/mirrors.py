"""Databases for mirrors, written and read as Firestore's own messages: the client's values do not tell all of them apart."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.types import Document

from ops.checkout import ROOT

Message: type[Any] = Document.pb()
"""google.firestore.v1.Document."""


def root_of(project: str) -> str:
    return f"projects/{project}/databases/(default)/documents"


def everything(project: str) -> Any:
    """A document with every type of value, and the values of each that are easily lost."""
    document = Message()
    fields = document.fields
    fields["null"].null_value = 0
    fields["yes"].boolean_value = True
    fields["integer"].integer_value = 1
    fields["largest integer"].integer_value = 2**63 - 1
    fields["smallest integer"].integer_value = -(2**63)
    for name, double in {
        "double": 1.0,
        "negative zero": -0.0,
        "zero": 0.0,
        "smallest double": 5e-324,
        "a tenth": 0.1,
        "not a number": float("nan"),
        "infinity": float("inf"),
        "negative infinity": float("-inf"),
    }.items():
        fields[name].double_value = double
    fields["time"].timestamp_value.seconds = -1
    fields["time"].timestamp_value.nanos = 123_456_000
    fields["first time"].timestamp_value.seconds = -62_135_596_800
    fields["text"].string_value = "Ünï\u0000cödé \u2028 \U0001f989\n"
    fields["no text"].string_value = ""
    fields["bytes"].bytes_value = bytes(range(256))
    fields["point"].geo_point_value.latitude = -90.0
    fields["origin of points"].geo_point_value.SetInParent()
    fields["here"].reference_value = f"{root_of(project)}/things/everything"
    fields["elsewhere"].reference_value = f"{root_of('demo-elsewhere')}/things/everything"
    fields["a path in a text"].string_value = f"{root_of(project)}/things/everything"
    fields["empty map"].map_value.SetInParent()
    fields["empty list"].array_value.SetInParent()
    vector = fields["vector"].map_value.fields
    vector["__type__"].string_value = "__vector__"
    for part in (1.0, -0.0, 0.1):
        vector["value"].array_value.values.add().double_value = part
    inner = fields["list"].array_value.values.add().map_value.fields["odd `name`. of a field"]
    inner.array_value.values.add().reference_value = f"{root_of(project)}/things/deep"
    deep = fields["deep"]
    for _ in range(19):
        deep = deep.map_value.fields["in"]
    deep.integer_value = 20
    return document


def saying(text: str) -> Any:
    """A document that says only this."""
    document = Message()
    document.fields["text"].string_value = text
    return document


async def put(firestore: AsyncClient, documents: Mapping[str, Any]) -> None:
    """Writes documents at their paths, in batches."""
    root = root_of(firestore.project)
    paths = list(documents)
    for start in range(0, len(paths), 250):
        writes: list[Any] = []
        for path in paths[start : start + 250]:
            message = Message()
            message.CopyFrom(documents[path])
            message.name = f"{root}/{path}"
            writes.append({"update": Document.wrap(message)})
        api, metadata = raw(firestore)
        await api.commit({"database": root.removesuffix("/documents"), "writes": writes}, metadata=metadata)


def raw(firestore: AsyncClient) -> tuple[Any, Any]:
    """What speaks in Firestore's own messages below a client, and what goes along with each."""
    api = firestore._firestore_api  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    return api, firestore._rpc_metadata  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


async def held(firestore: AsyncClient) -> dict[str, Any]:
    """Every document of the database by its path, without its name and times."""
    root = root_of(firestore.project)
    found: dict[str, Any] = {}
    parents = [root]
    api, metadata = raw(firestore)
    while parents:
        parent = parents.pop()
        async for collection in await api.list_collection_ids({"parent": parent}, metadata=metadata):
            # Those that do not exist but have documents below them are listed too, without times.
            request = {"parent": parent, "collection_id": collection, "show_missing": True, "page_size": 300}
            pager = await api.list_documents(request, metadata=metadata)
            async for document in (Document.pb(document) async for document in pager):
                parents.append(document.name)
                if document.HasField("update_time"):
                    found[document.name.removeprefix(f"{root}/")] = Message(fields=document.fields)
    return found


def names_in(folder: Path) -> list[str]:
    """What lies in a folder, in order."""
    return sorted(path.name for path in folder.iterdir())


def documents_file(folder: Path) -> Path:
    """The only file of documents of a small mirror."""
    [file] = folder.glob("data-*/documents-00001.jsonl")
    return file


def size_of(folder: Path) -> int:
    """The bytes of all files below a folder, of which some may go meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def command_line(*arguments: object) -> list[str]:
    """The command as a process of its own."""
    return [sys.executable, "-P", "-m", "ops", "mirror", *map(str, arguments)]


def surroundings(emulator_host: str) -> dict[str, str]:
    """What that process needs."""
    path = os.pathsep.join([str(ROOT / "scripts"), str(ROOT / "functions")])
    return {"PATH": os.environ["PATH"], "PYTHONPATH": path, "FIRESTORE_EMULATOR_HOST": emulator_host}
