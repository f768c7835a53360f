"""The one place where concrete classes are chosen. Tests call the same functions with replacements.

What is heavy to import (mcp, Firestore, models) is imported by the first request that needs it, in the worker process:
discovery and health answers need none of it, a listing of tools needs no Firestore, and a connection must not be older
than the server's fork.
"""

import os
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.types import ASGIApp

from metacortex import logs
from metacortex.errors import ConfigurationError
from metacortex.events import Clock, Event, authorization_event, now_ms
from metacortex.ports import Embedder, EventLog, ImageDescriber, MemoryStore, Merger
from metacortex.service import MemoryService, Options
from metacortex.settings import ModelProvider, RetrievalMode, Settings, in_emulator, load, project_id, service_name
from metacortex.startup import building_lazily, once
from metacortex.trail import Recorder, Rejections
from metacortex.web.app import Installation, create_app
from metacortex.web.sign_in import SignIn

if TYPE_CHECKING:
    from google.cloud.firestore_v1.async_client import AsyncClient

    from metacortex.adapters.gemini_client import Route
    from metacortex.oauth.ports import ClientDocuments, OAuthStore, ProviderSignIn
    from metacortex.oauth.service import Authorization


@dataclass(frozen=True, kw_only=True)
class Stores:
    memories: MemoryStore
    events: EventLog
    oauth: "OAuthStore | None" = None
    """None where nobody signs in."""
    documents: "ClientDocuments | None" = None
    """None for those that are fetched."""


@dataclass(frozen=True, kw_only=True)
class Models:
    embedder: Embedder
    describer: ImageDescriber
    merger: Merger
    routes: Sequence["Route"] = ()
    """The connections behind them."""

    async def close(self) -> None:
        """Ends the connections; a process that ends anyway need not."""
        for route in self.routes:
            await route.close()


def application(environment: Mapping[str, str] = os.environ) -> Starlette:
    """The ASGI app of this process, configured by its environment."""
    project = project_id(environment)
    logs.configure(project=project, readable=in_emulator(environment))

    def installed() -> Installation:
        settings = load(environment)
        return install(settings, lambda: firestore(settings, project), models(settings, project))

    return create_app(once(installed), project_id=project, service_name=service_name(environment))


@dataclass(frozen=True)
class _Opened:
    service: MemoryService
    events: EventLog
    authorization: "Authorization | None"
    oauth_app: Callable[[], Awaitable[ASGIApp]]


def install(settings: Settings, stores: Callable[[], Stores], models: Models, clock: Clock = now_ms) -> Installation:
    """Puts the parts together; `stores` is called with the first request that reads or writes."""
    with building_lazily():
        from metacortex.tools.observe import Observer
        from metacortex.tools.server import McpApp

    def open_store() -> _Opened:
        kept = stores()
        authorization = _authorization(settings, kept, recorder, clock) if kept.oauth else None
        return _Opened(
            service=service(settings, kept.memories, models, clock),
            events=kept.events,
            authorization=authorization,
            oauth_app=once(lambda: _oauth_app(settings, kept.oauth, authorization, clock)),
        )

    opened = once(open_store)

    async def serving() -> MemoryService:
        return (await opened()).service

    async def append(events: Sequence[Event]) -> None:
        await (await opened()).events.append(events)

    async def opens(token: str, profile_id: str) -> bool:
        authorization = (await opened()).authorization
        return authorization is not None and await authorization.verify(token, profile_id)

    async def oauth_app() -> ASGIApp:
        return await (await opened()).oauth_app()

    recorder = Recorder(append)
    telemetry_of = settings.memory_collection if settings.retrieval_event_logging_enabled else None
    observer = Observer(serving, recorder, clock, telemetry_of)
    mcp = McpApp(observer, name=settings.service_name, version=settings.service_version)
    sign_in = SignIn(settings.public_base_url, opens, oauth_app) if settings.public_base_url else None
    return Installation(settings, mcp, Rejections(recorder, clock), sign_in)


def _authorization(settings: Settings, stores: Stores, recorder: Recorder, clock: Clock) -> "Authorization":
    from metacortex.adapters.client_documents import FetchedDocuments
    from metacortex.oauth.service import Authorization

    async def note(action: str, fields: Mapping[str, object]) -> None:
        await recorder.record(authorization_event(uuid.uuid4().hex, clock(), action, fields))

    assert stores.oauth is not None
    documents = stores.documents or FetchedDocuments()
    return Authorization(
        stores.oauth, documents, settings.profiles, base=settings.public_base_url, note=note, clock=clock
    )


def _oauth_app(
    settings: Settings, store: "OAuthStore | None", authorization: "Authorization | None", clock: Clock
) -> ASGIApp:
    """The pages and endpoints of signing in: what they need is imported when one of them is asked for."""
    from metacortex.oauth.owner import Owner
    from metacortex.web.oauth.app import create_oauth_app

    assert store is not None
    assert authorization is not None
    passphrase_hash = settings.owner_passphrase_hash if settings.has_passphrase else ""
    return create_oauth_app(authorization, Owner(store, passphrase_hash, clock), _google(settings))


def _google(settings: Settings) -> "ProviderSignIn | None":
    if not settings.has_google:
        return None
    from metacortex.adapters.google_sign_in import GoogleOwner, GoogleSignIn

    owner = GoogleOwner(
        client_id=settings.google_sign_in_client_id,
        client_secret=settings.google_sign_in_client_secret,
        email=settings.owner_email,
        subject=settings.owner_subject,
        issuer=settings.google_sign_in_issuer,
    )
    return GoogleSignIn(owner, settings.public_base_url)


def service(settings: Settings, store: MemoryStore, models: Models, clock: Clock = now_ms) -> MemoryService:
    """What the tools call, without the tools: for work that an owner does on this side of the door."""
    hybrid = settings.retrieval_mode is RetrievalMode.HYBRID
    options = Options(
        results=settings.search_result_limit,
        candidates=settings.retrieval_candidates,
        sources=settings.consolidation_batch_limit,
        lexical_weight=settings.retrieval_lexical_weight if hybrid else 0.0,
        floor=settings.search_min_score,
    )
    return MemoryService(store, models, options, clock)


def firestore(settings: Settings, project: str | None) -> Stores:
    from metacortex.adapters.firestore_client import create_client
    from metacortex.adapters.firestore_events import FirestoreEvents
    from metacortex.adapters.firestore_memories import FirestoreMemories

    client = create_client(project)
    return Stores(
        memories=FirestoreMemories(client, settings.memory_collection),
        events=FirestoreEvents(client),
        oauth=_oauth_store(client) if settings.public_base_url else None,
    )


def _oauth_store(client: "AsyncClient") -> "OAuthStore":
    from metacortex.adapters.firestore_oauth import FirestoreOAuth

    return FirestoreOAuth(client)


def models(settings: Settings, project: str | None) -> Models:
    """The configured model route. Nothing is connected or probed here."""
    if settings.provider is not ModelProvider.LOCAL:
        return _gemini(settings, project)
    from metacortex.adapters.local_models import LocalEmbedder, LocalImages, LocalMerger

    return Models(embedder=LocalEmbedder(), describer=LocalImages(), merger=LocalMerger())


def _gemini(settings: Settings, project: str | None) -> Models:
    from metacortex.adapters.gemini_client import Route
    from metacortex.adapters.gemini_embedder import GeminiEmbedder
    from metacortex.adapters.gemini_images import GeminiImages
    from metacortex.adapters.gemini_merge import GeminiMerger

    if settings.provider is ModelProvider.GEMINI:
        embedding = generation = Route(api_key=settings.gemini_api_key)
    elif project is None:
        raise ConfigurationError(["GCLOUD_PROJECT is not set; Vertex AI needs the project to be named."])
    else:
        embedding = Route(project=project, location=settings.gemini_vertex_location)
        generation = Route(project=project, location=settings.gemini_generation_vertex_location)
    return Models(
        embedder=GeminiEmbedder(embedding, settings.gemini_embedding_model, settings.gemini_embedding_dimensions),
        describer=GeminiImages(generation, settings.gemini_multimodal_model),
        merger=GeminiMerger(generation, settings.gemini_merge_model),
        routes=(embedding, generation),
    )
