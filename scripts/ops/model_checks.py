"""Whether each configured model does its work: one embedding, one image described, one merge, all of text made up here."""

import importlib
import re
import struct
import time
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from metacortex.bootstrap import Models
from metacortex.errors import MetaCortexError
from metacortex.memory import BranchState, Image, Memory, Metadata, Modality
from metacortex.ports import Document
from metacortex.settings import ModelProvider, Settings
from ops.retired_models import RETIREMENTS

TEXT = "The owl lives in the barn."
TOPIC = "a check of the models"
SIDE = 64
MONDAY, TUESDAY = 1_767_600_000_000, 1_767_686_400_000
MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ @-]*(/[A-Za-z0-9][A-Za-z0-9._@-]*)*")
CANNOT_BE_SENT = "What is configured cannot be sent; look for letters and signs that do not belong into it."
YOUR_IDENTITY = "On this machine that is the identity of `gcloud auth application-default login`."


class Status(StrEnum):
    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Subject:
    """A use of models: the model, the place where it is reached, and the settings that say so."""

    name: str
    model: str
    place: str
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """How a check ended. `warning`: that the model's days are counted, or over."""

    subject: Subject
    status: Status
    latency_ms: float
    detail: str
    warning: str | None


def subjects(settings: Settings, embedding_model: str) -> tuple[Subject, Subject, Subject]:
    """What there is to check on the configured route: embedding, image and merge."""
    if settings.provider is ModelProvider.LOCAL:
        here = "on this machine"
        return (
            Subject("embedding", embedding_model, here),
            Subject("image", "no model", here),
            Subject("merge", "a rule", here),
        )
    on_vertex = settings.provider is ModelProvider.VERTEX
    embedding = f"in {settings.gemini_vertex_location}" if on_vertex else "by key"
    generation = f"in {settings.gemini_generation_vertex_location}" if on_vertex else "by key"
    by_embedding = "GEMINI_VERTEX_LOCATION" if on_vertex else "GEMINI_API_KEY"
    by_generation = "GEMINI_GENERATION_VERTEX_LOCATION" if on_vertex else "GEMINI_API_KEY"
    return (
        Subject("embedding", embedding_model, embedding, ("GEMINI_EMBEDDING_MODEL", by_embedding)),
        Subject("image", settings.gemini_multimodal_model, generation, ("GEMINI_MULTIMODAL_MODEL", by_generation)),
        Subject("merge", settings.gemini_merge_model, generation, ("GEMINI_MERGE_MODEL", by_generation)),
    )


async def checked(settings: Settings, models: Models, begin: Callable[[Subject], None]) -> AsyncGenerator[Check]:
    """Every check as it ends; `begin` is told of each before. The models' connections are ended with the last."""
    if settings.provider is not ModelProvider.LOCAL:
        # It takes most of a second, which is no time of the first model's.
        importlib.import_module("google.genai")
    asks = (_embed, _describe, _merge)
    try:
        for subject, ask in zip(subjects(settings, models.embedder.space.model), asks, strict=True):
            begin(subject)
            yield await _check(subject, ask, models)
    finally:
        await models.close()


async def _check(subject: Subject, ask: Callable[[Models], Awaitable[tuple[Status, str]]], models: Models) -> Check:
    began = time.perf_counter()
    try:
        status, detail = await ask(models)
    except MetaCortexError as error:
        # Google's client refuses such a model before it sends anything, in words that say nothing of that.
        says = error.message if MODEL.fullmatch(subject.model) else CANNOT_BE_SENT
        status, detail = Status.FAILED, _told(says, subject, models)
    except ValueError:
        # And such a location or key.
        status, detail = Status.FAILED, _told(CANNOT_BE_SENT, subject, models)
    latency_ms = round((time.perf_counter() - began) * 1000, 1)
    return Check(subject, status, latency_ms, detail, _warning(subject))


async def _embed(models: Models) -> tuple[Status, str]:
    space = models.embedder.space
    [vector] = await models.embedder.embed_documents([Document(text=TEXT, topic=TOPIC)], text_format=space.text_format)
    return Status.OK, f"{len(vector)} dimensions, space {space.id}"


async def _describe(models: Models) -> tuple[Status, str]:
    description = await models.describer.describe(Image(mime_type="image/png", data=picture(SIDE)), TEXT)
    if description is None:
        return Status.SKIPPED, "this route cannot see, and stores an image under the text that comes with it"
    return Status.OK, f"described in {len(description):,} characters"


async def _merge(models: Models) -> tuple[Status, str]:
    sources = [_memory("1", TEXT, MONDAY), _memory("2", "The owl has moved from the barn to the oak.", TUESDAY)]
    merged = await models.merger.merge(sources, topic=TOPIC)
    return Status.OK, f"{len(sources)} memories merged into {len(merged):,} characters"


def _memory(memory_id: str, content: str, created_at: int) -> Memory:
    metadata = Metadata(topic=TOPIC, branch_state=BranchState.WIP, modality=Modality.TEXT, created_at=created_at)
    return Memory(id=memory_id, content=content, metadata=metadata)


def picture(side: int) -> bytes:
    """A PNG, black on the left and white on the right. Models may refuse an image of one pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    eight_bits_of_grey = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    unfiltered_row = b"\0" + b"\0" * (side // 2) + b"\xff" * (side - side // 2)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", eight_bits_of_grey)
        + chunk(b"IDAT", zlib.compress(unfiltered_row * side))
        + chunk(b"IEND", b"")
    )


def _told(sentence: str, subject: Subject, models: Models) -> str:
    identity = any(not route.api_key and route.credential in sentence for route in models.routes)
    where = f"The settings are {' and '.join(subject.settings)}." if subject.settings else ""
    return " ".join(filter(None, (sentence, YOUR_IDENTITY if identity else "", where)))


def _warning(subject: Subject) -> str | None:
    retirement = RETIREMENTS.get(subject.model)
    if retirement is None:
        return None
    setting = subject.settings[0]
    consequence = (
        ", which is another embedding space: memories must be embedded anew for it"
        if subject.name == "embedding"
        else ""
    )
    ends = retirement.told(subject.model, datetime.now(UTC).date())
    return f"{ends}; set {setting} to {retirement.instead}{consequence}."
