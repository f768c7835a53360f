"""functions/main.py where the one host of client documents stands on this machine."""

import os
import ssl
from collections.abc import Sequence
from dataclasses import replace

from metacortex import bootstrap
from metacortex.adapters.client_documents import FetchedDocuments, Place
from metacortex.bootstrap import Stores
from metacortex.settings import Settings

PORT = int(os.environ["DOCUMENT_PORT"])
AUTHORITY = os.environ["DOCUMENT_AUTHORITY"]

connect_store = bootstrap.firestore


async def resolve(_: str) -> Sequence[Place]:
    return [("127.0.0.1", PORT)]


def is_the_host(address: str) -> bool:
    return address == "127.0.0.1"


def firestore(settings: Settings, project: str | None) -> Stores:
    documents = FetchedDocuments(resolve, ssl.create_default_context(cadata=AUTHORITY), may_reach=is_the_host)
    return replace(connect_store(settings, project), documents=documents)


bootstrap.firestore = firestore

from main import metaCortexMcp  # noqa: E402, F401  # pyright: ignore[reportUnusedImport]
