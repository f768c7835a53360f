"""The rules of memory as pure functions: what is accepted, how it is normalised, what counts as the same write."""

import base64
import binascii
import hashlib
import json
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from metacortex.errors import InvalidArgument, TooLarge
from metacortex.memory import Draft, Image, Metadata, SupersessionReason

CONTENT_BYTES = 400_000
TOPIC_CHARACTERS = 200
SOURCE_SESSION_CHARACTERS = 200
ARTIFACT_REFS = 50
ARTIFACT_REF_BYTES = 1_000
DERIVED_FROM = 100
QUERY_CHARACTERS = 20_000
SEARCH_RESULTS = 20
LISTED = 100
DOCUMENT_ID_BYTES = 1_500
SUMMARY_CHARACTERS = 220
PAGE_CHARACTERS = 50_000
# A memory and its parts are one commit, and Firestore takes 10 MiB in one: so many vectors of 2,048 numbers are 7 MB of it.
MOST_PARTS = 300
DUPLICATE_WINDOW_MS = 15 * 60 * 1000
DEFAULT_TOPIC = "general"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
EARLIEST_MS = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MILLISECOND
LATEST_MS = (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC) - _EPOCH) // _MILLISECOND


# --- Text ---


def encodable(text: str, name: str) -> str:
    """The text unchanged, or InvalidArgument where it holds a lone surrogate: no such text can be stored or sent."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"{name} holds half of a surrogate pair, which is not valid Unicode; send the whole character or leave it out."
        ) from None
    return text


def content(text: str | None, name: str = "content") -> str:
    """Content trimmed at both ends and otherwise untouched; empty where there is none."""
    trimmed = encodable(text or "", name).strip()
    size = len(trimmed.encode())
    if size > CONTENT_BYTES:
        raise TooLarge(
            f"{name} is {size:,} bytes of UTF-8 and the limit is {CONTENT_BYTES:,}; save it as several memories."
        )
    return trimmed


def short_text(text: str | None, name: str, limit: int) -> str | None:
    """A trimmed one-line text of at most `limit` characters, or None where it is missing or blank."""
    trimmed = encodable(text or "", name).strip()
    if len(trimmed) > limit:
        raise TooLarge(f"{name} has {len(trimmed):,} characters and the limit is {limit}; shorten it.")
    return trimmed or None


def topic(text: str | None) -> str:
    """The trimmed topic; a blank one means `general`. Case is kept and compared exactly."""
    return short_text(text, "topic", TOPIC_CHARACTERS) or DEFAULT_TOPIC


def query(text: str) -> str:
    """A trimmed query, never blank."""
    trimmed = encodable(text, "query").strip()
    if not trimmed:
        raise InvalidArgument("query is blank; say in a few words what to look for.")
    if len(trimmed) > QUERY_CHARACTERS:
        raise TooLarge(f"query has {len(trimmed):,} characters and the limit is {QUERY_CHARACTERS:,}; shorten it.")
    return trimmed


def artifact_refs(refs: Sequence[str]) -> tuple[str, ...]:
    if len(refs) > ARTIFACT_REFS:
        raise TooLarge(f"artifact_refs has {len(refs)} entries and the limit is {ARTIFACT_REFS}; keep the most useful.")
    for position, ref in enumerate(refs):
        name = f"artifact_refs[{position}]"
        size = len(encodable(ref, name).encode())
        if size > ARTIFACT_REF_BYTES:
            raise TooLarge(f"{name} is {size:,} bytes and the limit is {ARTIFACT_REF_BYTES:,}; shorten it.")
        if not ref.strip():
            raise InvalidArgument(f"{name} is blank; leave it out.")
    return tuple(refs)


def derived_from(ids: Sequence[str]) -> tuple[str, ...]:
    if len(ids) > DERIVED_FROM:
        raise TooLarge(f"derived_from has {len(ids)} entries and the limit is {DERIVED_FROM}; name the main sources.")
    for position, memory_id in enumerate(ids):
        if not is_document_id(memory_id):
            raise InvalidArgument(
                f"derived_from[{position}] cannot be the id of a memory; send ids as they were returned."
            )
    return tuple(ids)


def confidence(value: float | None) -> float | None:
    if value is not None and not 0 <= value <= 1:
        raise InvalidArgument("confidence must be a number from 0 to 1.")
    return value


def stored_bytes(draft: Draft) -> int:
    """What a memory's texts take as UTF-8. Beside an image its content is there twice: alone, and with the description."""
    texts = (*[draft.content] * (2 if draft.image else 1), *draft.artifact_refs, *draft.provenance.derived_from)
    return sum(len(text.encode()) for text in texts)


def summary(text: str) -> str:
    """The text on one line: white space collapsed, at most 220 characters."""
    # So many words are more than enough: a long text is not looked through.
    collapsed = " ".join(text.split(maxsplit=SUMMARY_CHARACTERS))
    return collapsed if len(collapsed) <= SUMMARY_CHARACTERS else collapsed[: SUMMARY_CHARACTERS - 3] + "..."


def stretches(text: str, page: int) -> list[str]:
    """The parts of a text longer than a page. Those of a very long text are longer than a page, rather than too many."""
    # Each begins at least half its size behind the one before.
    return parts(text, max(page, 2 * len(text) // MOST_PARTS))


def parts(text: str, size: int) -> list[str]:
    """A text longer than `size` in stretches of at most that, each beginning a little before the last one ended.

    They end where a paragraph, a sentence or at least a word does. Blank ones are left out; a shorter text has no parts.
    """
    if len(text) <= size:
        return []
    found: list[str] = []
    start = 0
    while start + size < len(text):
        end = _last_break(text, start + size * 3 // 4, start + size)
        found.append(text[start:end])
        start = _last_break(text, end - size // 4, end - size // 8)
    return [part for part in (*found, text[start:]) if part.strip()]


def _last_break(text: str, low: int, high: int) -> int:
    """The last place in a stretch of text where it may be cut, by the best kind of place that there is."""
    for kind in _BREAKS:
        if places := [place.end() for place in kind.finditer(text, low, high)]:
            return places[-1]
    return high


_BREAKS = (re.compile(r"\n\s*\n"), re.compile(r"(?<=[.!?…])\s+|[。！？]|\n"), re.compile(r"\s+"))


def is_document_id(text: str) -> bool:
    """Whether Firestore would take the text as the id of a document."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return False
    reserved = text in {".", ".."} or (len(text) >= 4 and text.startswith("__") and text.endswith("__"))
    return 0 < size <= DOCUMENT_ID_BYTES and "/" not in text and "\0" not in text and not reserved


def page(text: str, offset: int, size: int = PAGE_CHARACTERS) -> tuple[str, int | None]:
    """At most `size` characters of a text from an offset, and the offset of what follows, if anything does."""
    if offset and offset >= len(text):
        raise InvalidArgument(f"offset is past the end of this memory, which has {len(text):,} characters.")
    end = offset + size
    return text[offset:end], end if end < len(text) else None


# --- Time ---

_TIME_FORMS = (
    "send epoch milliseconds as a number, or ISO 8601 such as 2026-03-01, 2026-03-01T09:30 or 2026-03-01T09:30:00+02:00 "
    "(UTC where no zone is given)"
)


def parse_time(value: object) -> int:
    """Epoch milliseconds from a number or an ISO 8601 text, in the years 1 to 9999; ValueError tells what is accepted."""
    milliseconds = _from_number(value) if isinstance(value, int | float) else _from_text(value)
    if milliseconds is None or not EARLIEST_MS <= milliseconds <= LATEST_MS:
        raise ValueError(f"not a time this service can keep; {_TIME_FORMS}")
    return milliseconds


def _from_number(value: float) -> int | None:
    if isinstance(value, float):
        return math.floor(value) if math.isfinite(value) else None
    return None if isinstance(value, bool) else value


# Where a date ends and what may stand before the time, which datetime leaves open.
_DATE_AND_TIME = re.compile(r"[0-9]{4}-?(?:[0-9]{2}-?[0-9]{2}|W[0-9]{2}(?:-?[0-9])?)(?:[T ].+)?")


def _from_text(value: object) -> int | None:
    text = value.strip().upper() if isinstance(value, str) else ""
    if text.isdecimal() or not _DATE_AND_TIME.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH) // _MILLISECOND


def format_time(milliseconds: int) -> str:
    """ISO 8601 in UTC with milliseconds, such as 2026-03-14T12:00:00.000Z."""
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def day(milliseconds: int) -> str:
    """The day in UTC as people write and ask for it, such as 8 May 2023."""
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year}"


_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def check_validity(valid_from: int | None, valid_until: int | None) -> None:
    if valid_from is not None and valid_until is not None and valid_from >= valid_until:
        raise InvalidArgument("valid_from must be earlier than valid_until.")


def is_valid_at(metadata: Metadata, moment: int) -> bool:
    """Whether what a memory says held at a moment: from valid_from on, until just before valid_until, never corrected."""
    if metadata.supersession_reason is SupersessionReason.CORRECTED:
        return False
    begun = metadata.valid_from is None or metadata.valid_from <= moment
    return begun and (metadata.valid_until is None or metadata.valid_until > moment)


# --- Images ---

_HEIF_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
# AVIF has the same structure and names mif1, too.
_AVIF_BRANDS = {b"avif", b"avis"}


def _is_heif(data: bytes) -> bool:
    # The first box: its length, «ftyp», the major brand, a version, and the compatible brands.
    length = min(int.from_bytes(data[:4]), 256)
    brands = {data[start : start + 4] for start in (8, *range(16, length, 4))}
    return data[4:8] == b"ftyp" and data[8:12] not in _AVIF_BRANDS and not brands.isdisjoint(_HEIF_BRANDS)


def _is_webp(data: bytes) -> bool:
    return data[:4] == b"RIFF" and data[8:12] == b"WEBP" and int.from_bytes(data[4:8], "little") + 8 <= len(data)


# Each test wants the first bytes of the format and, where the format has one, its end: half an image is no image.
_IMAGE_TESTS: Mapping[str, Callable[[bytes], bool]] = {
    "image/png": lambda data: data.startswith(b"\x89PNG\r\n\x1a\n") and b"IEND" in data,
    "image/jpeg": lambda data: data.startswith(b"\xff\xd8\xff") and b"\xff\xd9" in data[3:],
    "image/webp": _is_webp,
    "image/gif": lambda data: data[:6] in {b"GIF87a", b"GIF89a"} and data.rstrip(b"\0").endswith(b";"),
    "image/heic": _is_heif,
    "image/heif": _is_heif,
}
IMAGE_MIME_TYPES = tuple(_IMAGE_TESTS)
_DATA_URL = re.compile(r"data:(?P<mime>[\w.+/-]*)(?:;[\w.+=-]+)*;base64,(?P<base64>.*)", re.DOTALL | re.IGNORECASE)


def image(encoded: str | None, mime_type: str | None) -> Image | None:
    """The image a client sent as base64, checked to be what it claims; None where it sent none.

    Line breaks and a data: URL around the base64 are accepted; the URL's type must agree with `mime_type`.
    """
    if (encoded is None) != (mime_type is None):
        raise InvalidArgument("image_base64 and image_mime_type go together; send both or neither.")
    if encoded is None or mime_type is None:
        return None
    claimed = _mime_type(mime_type)
    if claimed not in _IMAGE_TESTS:
        raise InvalidArgument(f"image_mime_type must be one of {', '.join(IMAGE_MIME_TYPES)}.")
    url = _DATA_URL.fullmatch(encoded.strip())
    if url and url["mime"] and _mime_type(url["mime"]) != claimed:
        raise InvalidArgument("image_base64 is a data: URL of another type than image_mime_type; make them agree.")
    data = _decode_base64(url["base64"] if url else encoded)
    if not _IMAGE_TESTS[claimed](data):
        raise InvalidArgument(
            f"image_base64 does not hold a whole {claimed} image; send the whole file and its own type."
        )
    return Image(mime_type=claimed, data=data)


def _mime_type(text: str) -> str:
    lowered = text.strip().lower()
    return "image/jpeg" if lowered == "image/jpg" else lowered


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgument("image_base64 is not complete base64; encode the whole file again.") from None


# --- Sameness ---


def fingerprint(draft: Draft) -> str:
    """SHA-256 (hex) over everything that makes two writes the same write."""
    provenance = draft.provenance
    parts = (
        draft.topic,
        draft.branch_state,
        draft.content,
        [draft.image.mime_type, hashlib.sha256(draft.image.data).hexdigest()] if draft.image else None,
        draft.artifact_refs,
        draft.valid_from,
        draft.valid_until,
        provenance.origin,
        provenance.source_session,
        provenance.derived_from,
        None if provenance.confidence is None else float(provenance.confidence),
    )
    return hashlib.sha256(json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()


def mean_direction(vectors: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The unit vector that several point to together; the first where they cancel each other out."""
    total = [math.fsum(values) for values in zip(*vectors, strict=True)]
    length = math.hypot(*total)
    return tuple(value / length for value in total) if length > 1e-9 else tuple(vectors[0])


def similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine similarity of two vectors of any length; 0 where one has no direction."""
    length = math.hypot(*one) * math.hypot(*other)
    return sum(map(operator.mul, one, other)) / length if length > 0 else 0.0


def score(cosine_similarity: float) -> float:
    """A similarity as clients see it: clamped to 0..1, 6 decimals."""
    return round(min(1.0, max(0.0, cosine_similarity)), 6)
