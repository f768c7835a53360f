"""save_context, as a client sees it."""

import base64
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from builders import NOON, Service, ToolError, plane_models
from fakes import FailingEmbedder, InMemoryEvents, InMemoryMemories, SeeingImages, with_state
from images import AVIF, PNG_BASE64, WHOLE
from metacortex import rules
from metacortex.bootstrap import Stores
from metacortex.errors import MetaCortexError, ModelFailed, RateLimited, TimedOut, Unavailable
from metacortex.events import Event
from metacortex.memory import BranchState, NewMemory
from metacortex.ports import Fingerprint


def stored(service: Service) -> InMemoryMemories:
    assert isinstance(service.stores.memories, InMemoryMemories)
    return service.stores.memories


async def refused(service: Service, profile: str = "agent", **arguments: Any) -> ToolError:
    """The error of a save that must be refused: before any model call, and without a trace."""
    with pytest.raises(ToolError) as error:
        await service.call("save_context", profile, **arguments)
    assert service.models.embedder.calls == []  # pyright: ignore[reportAttributeAccessIssue]
    assert stored(service).stored == {}
    return error.value


# --- What is stored ---


async def test_a_saved_memory_is_found_and_fetched(service: Service) -> None:
    item = await service.save("The cat is called Minka, at 10")
    [match] = await service.search("at 12")
    assert match["id"] == item["id"]
    assert await service.fetch(item["id"]) == item


async def test_the_answer_holds_the_public_item_in_the_contracts_order(service: Service) -> None:
    item = await service.save(
        " Fact ",
        topic=" Birds ",
        artifact_refs=["a.md"],
        valid_from="2026-01-01",
        valid_until=1_900_000_000_000,
        origin="user_asserted",
        source_session="s1",
        derived_from=["x"],
        confidence=0.5,
    )
    assert list(item) == ["id", "content", "metadata"]
    assert item["content"] == "Fact"
    assert list(item["metadata"].items()) == [
        ("topic", "Birds"),
        ("branch_state", "active"),
        ("modality", "text"),
        ("artifact_refs", ["a.md"]),
        ("created_at", rules.format_time(NOON)),
        ("updated_at", rules.format_time(NOON)),
        ("valid_from", "2026-01-01T00:00:00.000Z"),
        ("valid_until", "2030-03-17T17:46:40.000Z"),
        (
            "provenance",
            {"origin": "user_asserted", "source_session": "s1", "derived_from": ["x"], "confidence": 0.5},
        ),
    ]


async def test_only_the_admin_sees_who_wrote_a_memory(service: Service) -> None:
    item = await service.save("Fact")
    assert "written_by" not in item["metadata"]
    assert (await service.fetch(item["id"], "default"))["metadata"]["written_by"] == "agent"


@pytest.mark.parametrize("topic", [None, "", "  \n"])
async def test_a_missing_or_blank_topic_is_general(service: Service, topic: str | None) -> None:
    assert (await service.save("Fact", topic=topic))["metadata"]["topic"] == "general"


@pytest.mark.parametrize("size", [2_100, 40_000, 200_000, rules.CONTENT_BYTES])
async def test_long_content_comes_back_byte_for_byte(service: Service, size: int) -> None:
    content = "".join(chr(0x61 + i % 26) if i % 97 else "\n" for i in range(1, size)) + "z"
    item = await service.save(content)
    assert item["content"] == content
    assert stored(service).stored[item["id"]].memory.content == content


async def test_content_over_the_limit_is_refused_with_its_size_and_the_limit(service: Service) -> None:
    error = await refused(service, content="ü" * (rules.CONTENT_BYTES // 2) + "x")
    assert (error.status, error.code) == (413, "too_large")
    assert "400,001" in error.message
    assert "400,000" in error.message


@pytest.mark.parametrize(
    "content",
    ["🦉", "a\0b", "\u202eright to left\u202c", "e" + "\u0301" * 10_000, "tab\tand\u00a0space", "\ufeffmark"],
    ids=["emoji", "nul", "direction", "combining", "spaces", "bom"],
)
async def test_unusual_text_is_kept_faithfully(service: Service, content: str) -> None:
    item = await service.save(content)
    assert (await service.fetch(item["id"]))["content"] == content


@pytest.mark.parametrize("content", [None, "", "   ", "\n\t"])
async def test_content_without_text_is_refused(service: Service, content: str | None) -> None:
    error = await refused(service, content=content)
    assert (error.status, error.code) == (400, "invalid_argument")
    assert error.message.startswith("content is missing or blank")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ({"topic": "t" * 201}, 413, "topic has 201 characters and the limit is 200"),
        ({"source_session": "s" * 201}, 413, "source_session has 201 characters"),
        ({"artifact_refs": ["r"] * 51}, 413, "artifact_refs has 51 entries and the limit is 50"),
        ({"artifact_refs": ["ok", "ü" * 501]}, 413, r"artifact_refs\[1\] is 1,002 bytes"),
        ({"artifact_refs": ["ok", " "]}, 400, r"artifact_refs\[1\] is blank"),
        ({"derived_from": ["x"] * 101}, 413, "derived_from has 101 entries"),
        ({"derived_from": ["a/b"]}, 400, r"derived_from\[0\] cannot be the id"),
        ({"confidence": 1.01}, 400, "confidence must be a number from 0 to 1"),
        ({"confidence": True}, 400, "confidence: "),
        ({"confidence": "0.5"}, 400, "confidence: "),
        ({"content": 5}, 400, "content: "),
        ({"artifact_refs": "a.md"}, 400, "artifact_refs: "),
        ({"artifact_refs": ["a", None]}, 400, r"artifact_refs\[1\]: "),
        ({"draft": "yes"}, 400, "draft: "),
        ({"branch_state": "gone"}, 400, "branch_state: "),
        ({"origin": "me"}, 400, "origin: "),
        ({"draft": True, "branch_state": "wip"}, 400, "draft and branch_state exclude each other"),
        ({"draft": False, "branch_state": "wip"}, 400, "draft and branch_state exclude each other"),
        ({"valid_from": 2, "valid_until": 2}, 400, "valid_from must be earlier than valid_until"),
        ({"image_base64": PNG_BASE64}, 400, "image_base64 and image_mime_type go together"),
        ({"image_mime_type": "image/png"}, 400, "image_base64 and image_mime_type go together"),
    ],
)
async def test_bad_arguments_are_refused_with_a_sentence(
    service: Service, arguments: dict[str, Any], status: int, message: str
) -> None:
    error = await refused(service, **{"content": "Fact", **arguments})
    assert error.status == status
    assert re.match(message, error.message), error.message
    assert "pydantic" not in error.message


async def test_unknown_arguments_are_ignored_and_null_means_omitted(service: Service) -> None:
    item = await service.save("Fact", mood="good", topic=None, draft=None, valid_from=None, confidence=None)
    assert item["metadata"]["branch_state"] == "active"


# --- Times ---


@pytest.mark.parametrize(
    "moment",
    [
        "2026-03-01",
        "2026-03-01T00:00",
        "2026-03-01T00:00:00Z",
        "2026-03-01T02:00:00+02:00",
        "2026-03-01 00:00",
        "20260301T0000",
        "2026-W09-7",
        1772323200000,
        1772323200000.0,
    ],
)
async def test_every_form_of_an_instant_is_the_same_instant(service: Service, moment: Any) -> None:
    assert (await service.save("Fact", valid_from=moment))["metadata"]["valid_from"] == "2026-03-01T00:00:00.000Z"


@pytest.mark.parametrize(
    "moment",
    [
        "tomorrow",
        "2026-02-30",
        "2026-03-01x09:30",
        "2026-03-01-09",
        "2026-03-01T",
        1e300,
        -1e300,
        10**400,
        True,
        "20260301",
        "1772323200000",
        "",
        [],
    ],
)
async def test_what_is_no_instant_is_refused_with_the_accepted_forms(service: Service, moment: Any) -> None:
    error = await refused(service, content="Fact", valid_from=moment)
    assert error.status == 400
    assert error.message.startswith("valid_from: ")
    assert "ISO 8601" in error.message


# --- States and origins ---


@pytest.mark.parametrize(
    ("arguments", "state"),
    [({}, "active"), ({"draft": True}, "wip"), ({"draft": False}, "active"), ({"branch_state": "wip"}, "wip")],
)
async def test_the_state_a_memory_is_saved_in(service: Service, arguments: dict[str, Any], state: str) -> None:
    assert (await service.save("Fact", **arguments))["metadata"]["branch_state"] == state


async def test_a_draft_is_answered_but_stays_closed_to_a_client_that_reads_no_drafts(service: Service) -> None:
    item = await service.save("Fact", draft=True)
    with pytest.raises(ToolError) as error:
        await service.fetch(item["id"])
    assert error.value.status == 404
    assert (await service.fetch(item["id"], "reader"))["content"] == "Fact"


@pytest.mark.parametrize("state", ["merged", "deprecated"])
async def test_a_scoped_client_writes_only_its_states_and_the_admin_all(service: Service, state: str) -> None:
    error = await refused(service, content="Fact", branch_state=state)
    assert (error.status, error.code) == (403, "forbidden")
    assert "active, wip" in error.message
    assert (await service.save("Fact", "default", branch_state=state))["metadata"]["branch_state"] == state


async def test_only_the_admin_imports_legacy_memories(service: Service) -> None:
    error = await refused(service, content="Fact", origin="legacy_import")
    assert error.status == 403
    item = await service.save("Fact", "default", origin="legacy_import")
    assert item["metadata"]["provenance"] == {"origin": "legacy_import"}


# --- Equal writes ---


async def test_the_same_text_a_second_later_is_a_duplicate_and_forty_days_later_a_new_memory(service: Service) -> None:
    first = await service.call("save_context", content="Fact")
    service.clock.advance(minutes=1 / 60)
    second = await service.call("save_context", content="  Fact\n")
    assert (first["write_status"], second["write_status"]) == ("created", "duplicate")
    assert second["item"] == first["item"]
    service.clock.advance(days=40)
    third = await service.call("save_context", content="Fact")
    assert third["write_status"] == "created"
    assert third["item"]["id"] != first["item"]["id"]
    assert await service.fetch(first["item"]["id"]) == first["item"]


async def test_the_window_ends_after_fifteen_minutes(service: Service) -> None:
    await service.save("Fact")
    service.clock.advance(minutes=14.99)
    assert (await service.call("save_context", content="Fact"))["write_status"] == "duplicate"
    service.clock.advance(minutes=0.02)
    assert (await service.call("save_context", content="Fact"))["write_status"] == "created"


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "Other"},
        {"draft": True},
        {"artifact_refs": ["a"]},
        {"valid_from": 1},
        {"valid_until": 1},
        {"origin": "user_asserted"},
        {"source_session": "s"},
        {"derived_from": ["x"]},
        {"confidence": 0},
        {"image_base64": PNG_BASE64, "image_mime_type": "image/png"},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_the_same_text_with_another_detail_is_another_memory(service: Service, change: dict[str, Any]) -> None:
    await service.save("Fact")
    other = await service.call("save_context", content="Fact", **change)
    assert other["write_status"] == "created"
    assert len(stored(service).stored) == 2


async def test_an_equal_write_by_another_client_is_the_same_memory(service: Service) -> None:
    item = await service.save("Fact")
    assert (await service.save("Fact", "default"))["id"] == item["id"]


async def test_a_text_saved_again_after_its_memory_changed_state_is_a_new_memory(service: Service) -> None:
    item = await service.save("Fact")
    memories = stored(service).stored
    memories[item["id"]] = with_state(memories[item["id"]], branch_state=BranchState.DEPRECATED)
    again = await service.call("save_context", content="Fact")
    assert again["write_status"] == "created"
    assert memories[item["id"]].memory.metadata.branch_state is BranchState.DEPRECATED


class Contended(InMemoryMemories):
    """A store in which something happens at the moment of each of the next commits."""

    def __init__(self, *happenings: Callable[["Contended", NewMemory, Fingerprint, Event], Awaitable[bool]]) -> None:
        super().__init__(InMemoryEvents())
        self._happenings = list(happenings)

    async def save(self, new: NewMemory, fingerprint: Fingerprint, event: Event) -> bool:
        if not self._happenings:
            return await super().save(new, fingerprint, event)
        return await self._happenings.pop(0)(self, new, fingerprint, event)

    async def really_save(self, new: NewMemory, fingerprint: Fingerprint, event: Event) -> bool:
        return await super().save(new, fingerprint, event)


async def committed_but_told_otherwise(store: Contended, new: NewMemory, print_: Fingerprint, event: Event) -> bool:
    """The client library repeated a commit whose answer was lost, and the repetition met the first one's success."""
    assert await store.really_save(new, print_, event)
    return False


async def another_was_first(store: Contended, new: NewMemory, print_: Fingerprint, event: Event) -> bool:
    other = replace(new, memory=replace(new.memory, id=f"other-{len(store.stored)}"))
    assert await store.really_save(other, print_, event)
    return False


async def another_was_first_and_its_memory_changed(
    store: Contended, new: NewMemory, print_: Fingerprint, event: Event
) -> bool:
    await another_was_first(store, new, print_, event)
    [*_, last] = store.stored
    store.stored[last] = with_state(store.stored[last], branch_state=BranchState.DEPRECATED)
    return False


def contended(*happenings: Callable[[Contended, NewMemory, Fingerprint, Event], Awaitable[bool]]) -> Service:
    store = Contended(*happenings)
    return Service(stores=Stores(memories=store, events=store.events))


async def test_a_commit_that_meets_its_own_success_has_created_its_memory() -> None:
    service = contended(committed_but_told_otherwise)
    answer = await service.call("save_context", content="Fact")
    assert answer["write_status"] == "created"
    assert list(stored(service).stored) == [answer["item"]["id"]]


async def committed_but_never_answered(store: Contended, new: NewMemory, print_: Fingerprint, event: Event) -> bool:
    assert await store.really_save(new, print_, event)
    raise TimedOut("The store did not answer in time.")


async def test_a_commit_whose_answer_is_lost_leaves_both_its_success_and_the_failure_that_was_told() -> None:
    service = contended(committed_but_never_answered)
    with pytest.raises(ToolError) as error:
        await service.call("save_context", content="Fact")
    assert error.value.status == 504
    assert (await service.call("save_context", content="Fact"))["write_status"] == "duplicate"
    told = [(event.fields["status"], event.fields.get("response", {}).get("write_status")) for event in service.events]
    assert told == [("success", "created"), ("error", None), ("success", "duplicate")]


async def test_of_two_equal_saves_at_one_moment_the_later_is_a_duplicate() -> None:
    service = contended(another_was_first)
    answer = await service.call("save_context", content="Fact")
    assert (answer["write_status"], answer["item"]["id"]) == ("duplicate", "other-0")


async def test_a_save_goes_on_where_the_memory_that_was_first_is_no_longer_in_its_state() -> None:
    service = contended(another_was_first_and_its_memory_changed)
    answer = await service.call("save_context", content="Fact")
    assert answer["write_status"] == "created"
    assert len(stored(service).stored) == 2


async def test_a_save_that_loses_every_time_asks_to_be_repeated_and_then_succeeds() -> None:
    service = contended(*[another_was_first_and_its_memory_changed] * 3)
    with pytest.raises(ToolError) as error:
        await service.call("save_context", content="Fact")
    assert (error.value.status, error.value.code) == (503, "unavailable")
    assert (await service.call("save_context", content="Fact"))["write_status"] == "created"


# --- Images ---


@pytest.mark.parametrize("mime_type", WHOLE)
async def test_an_image_with_a_text_is_stored_under_its_text(service: Service, mime_type: str) -> None:
    encoded = base64.encodebytes(WHOLE[mime_type]).decode()
    item = await service.save("My chart", image_base64=encoded, image_mime_type=mime_type)
    assert item["content"] == "My chart"
    assert item["metadata"]["modality"] == "mixed"


@pytest.mark.parametrize(
    ("image_base64", "mime_type"),
    [
        (f"data:image/png;base64,{PNG_BASE64}", "image/png"),
        (PNG_BASE64, "IMAGE/PNG "),
        (f" {PNG_BASE64}\n", "image/png"),
    ],
)
async def test_unambiguous_spellings_of_an_image_are_accepted(
    service: Service, image_base64: str, mime_type: str
) -> None:
    await service.save("My chart", image_base64=image_base64, image_mime_type=mime_type)


@pytest.mark.parametrize(
    ("image_base64", "mime_type", "message"),
    [
        (PNG_BASE64, "image/jpeg", "does not hold a whole image/jpeg"),
        (f"data:image/png;base64,{PNG_BASE64}", "image/gif", "data: URL of another type"),
        (PNG_BASE64[:-1], "image/png", "not complete base64"),
        (base64.b64encode(WHOLE["image/png"][:40]).decode(), "image/png", "does not hold a whole image/png"),
        ("!!!!", "image/png", "not complete base64"),
        ("", "image/png", "does not hold a whole"),
        ("", "", "must be one of"),
        (base64.b64encode(AVIF).decode(), "image/heic", "does not hold a whole image/heic"),
        (base64.b64encode(AVIF).decode(), "image/heif", "does not hold a whole image/heif"),
        (PNG_BASE64, "image/svg+xml", "must be one of"),
        (PNG_BASE64, "text/html", "must be one of"),
        ("bücher", "image/png", "not complete base64"),
    ],
)
async def test_a_broken_or_mislabelled_image_is_refused_before_any_model_sees_it(
    service: Service, image_base64: str, mime_type: str, message: str
) -> None:
    seeing = SeeingImages()
    service = Service(models=plane_models(describer=seeing))
    error = await refused(service, content="My chart", image_base64=image_base64, image_mime_type=mime_type)
    assert error.status == 400
    assert message in error.message
    assert seeing.seen == []


async def test_a_text_with_an_image_that_one_document_cannot_hold_is_refused_before_any_model_sees_them() -> None:
    seeing = SeeingImages()
    service = Service(models=plane_models(describer=seeing))
    words = " ".join(f"я{number:03}{'ы' * 60}" for number in range(300)) * 2
    content = f"{words} {'x' * (399_999 - len(words.encode()))}"
    texts: dict[str, Any] = {
        "content": content,
        "artifact_refs": ["r" * 1_000] * 50,
        "derived_from": ["d" * 1_500] * 100,
    }
    error = await refused(service, image_base64=PNG_BASE64, image_mime_type="image/png", **texts)
    assert (error.status, error.code) == (413, "too_large")
    assert "artifact_refs and derived_from are 1,0" in error.message
    assert "bytes together and the limit is 1,004,000" in error.message
    assert seeing.seen == []
    assert (await service.call("save_context", **texts))["write_status"] == "created"


async def test_an_image_without_text_is_refused_on_a_route_that_cannot_see(service: Service) -> None:
    error = await refused(service, image_base64=PNG_BASE64, image_mime_type="image/png")
    assert error.status == 400
    assert "MODEL_PROVIDER" in error.message


async def test_an_image_without_text_is_stored_under_its_description() -> None:
    service = Service(models=plane_models(describer=SeeingImages("A chart, at 40")))
    item = await service.save("", image_base64=PNG_BASE64, image_mime_type="image/png")
    assert item["content"] == "A chart, at 40"
    assert item["metadata"]["modality"] == "image"
    [match] = await service.search("at 40")
    assert match["summary"] == "A chart, at 40"


# --- Failing models ---


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (Unavailable("The model cannot be reached."), 503),
        (RateLimited("The model asks for fewer calls."), 429),
        (TimedOut("The model did not answer in time."), 504),
        (ModelFailed("The model answered nonsense."), 502),
        (RuntimeError("secret details"), 500),
    ],
)
async def test_a_failed_model_leaves_no_trace_and_the_same_save_succeeds_afterwards(
    failure: Exception, status: int
) -> None:
    service = Service(models=plane_models(embedder=FailingEmbedder(errors=[failure])))
    with pytest.raises(ToolError) as error:
        await service.save("Fact")
    assert error.value.status == status
    assert "secret" not in error.value.message
    assert isinstance(failure, MetaCortexError) is (error.value.message == str(failure))
    assert stored(service).stored == {}
    assert stored(service).named is None
    assert (await service.call("save_context", content="Fact"))["write_status"] == "created"
