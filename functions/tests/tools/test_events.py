"""What the audit trail keeps of each tool call: exactly what the contract lists, and never what was written or what opens it."""

import re
from typing import Any

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient

from builders import NOON, TOKENS, ProtocolError, Service, ToolError, environment, path_of, plane_models
from fakes import FailingEmbedder, SeeingImages
from images import PNG_BASE64
from metacortex.bootstrap import Stores
from metacortex.errors import Unavailable
from metacortex.events import EventKind

CANARY = "canary-9f3b7c"
ALL_OF_A_SAVE: dict[str, Any] = {
    "content": f"{CANARY} at 10",
    "topic": "Birds",
    "branch_state": "wip",
    "artifact_refs": [CANARY, f"https://example.org/{CANARY}"],
    "valid_from": "2026-01-01",
    "valid_until": "2027-01-01T00:00:00Z",
    "origin": "user_asserted",
    "source_session": CANARY,
    "derived_from": [CANARY],
    "confidence": 0.5,
}
TOLD_OF_IT = {
    "topic": "Birds",
    "branch_state": "wip",
    "origin": "user_asserted",
    "content_length": 19,
    "image_present": False,
    "artifact_ref_count": 2,
    "valid_from": 1_767_225_600_000,
    "valid_until": 1_798_761_600_000,
}
ALL_FILTERS: dict[str, Any] = {
    "filter_topic": "Birds",
    "filter_state": "active",
    "valid_at": "2026-05-01",
    "filter_origin": "user_asserted",
    "limit": 3,
}
TOLD_FILTERS = {**ALL_FILTERS, "valid_at": 1_777_593_600_000}
LONG_QUERY = "What  do\nwe know of owls at 10 " + "and of their nests " * 20 + "?"


def told(service: Service, kind: EventKind = EventKind.MEMORY) -> list[dict[str, Any]]:
    """The fields of the events so far, and then forgets them."""
    events = [event for event in service.events if event.kind is kind]
    for event in events:
        assert re.fullmatch("[0-9a-f]{32}", event.id)
        assert event.timestamp == NOON
        latency = event.fields.get("latency_ms", 0)
        assert isinstance(latency, int)
        assert latency >= 0
    service.stores.events.stored.clear()  # pyright: ignore[reportAttributeAccessIssue]
    return [dict(event.fields) for event in events]


def a_call(tool: str, status: str = "success", client: str = "agent", **more: Any) -> dict[str, Any]:
    return {"event_type": "tool_call", "client_id": client, "tool_name": tool, "status": status, **more}


def timed(event: dict[str, Any]) -> dict[str, Any]:
    """The event of a call that is over, without how long it took."""
    assert "latency_ms" in event
    return {name: value for name, value in event.items() if name != "latency_ms"}


# --- save_context ---


async def test_a_save_is_told_in_the_event_of_its_commit(service: Service) -> None:
    item = await service.save(**ALL_OF_A_SAVE)
    stored = {"id": item["id"], "topic": "Birds", "branch_state": "wip", "modality": "text", "write_status": "created"}
    assert told(service) == [a_call("save_context", request=TOLD_OF_IT, response=stored)]


async def test_an_image_and_a_draft_are_told_without_the_image(service: Service) -> None:
    seeing = plane_models(describer=SeeingImages(f"{CANARY} at 10"))
    service = Service(models=seeing)
    item = await service.call("save_context", draft=True, image_base64=PNG_BASE64, image_mime_type="image/png")
    [event] = told(service)
    assert event["request"] == {"draft": True, "content_length": 0, "image_present": True, "artifact_ref_count": 0}
    assert event["response"] == {
        "id": item["item"]["id"],
        "topic": "general",
        "branch_state": "wip",
        "modality": "image",
        "write_status": "created",
    }


async def test_a_duplicate_is_told_as_one_with_its_time(service: Service) -> None:
    item = await service.save(**ALL_OF_A_SAVE)
    told(service)
    await service.save(**ALL_OF_A_SAVE)
    stored = {
        "id": item["id"],
        "topic": "Birds",
        "branch_state": "wip",
        "modality": "text",
        "write_status": "duplicate",
    }
    [event] = told(service)
    assert timed(event) == a_call("save_context", request=TOLD_OF_IT, response=stored)


# --- search_context ---


async def test_a_search_is_told_by_the_first_160_characters_of_its_query(service: Service) -> None:
    item = await service.save("Owl at 10", topic="Birds", origin="user_asserted", valid_from="2026-01-01")
    told(service)
    [match] = await service.search(LONG_QUERY, **ALL_FILTERS)
    preview = " ".join(LONG_QUERY.split())[:160]
    request = {"query_preview": preview, "query_length": len(LONG_QUERY), **TOLD_FILTERS}
    [event] = told(service)
    assert match["id"] == item["id"]
    assert timed(event) == a_call(
        "search_context", request=request, response={"result_count": 1, "result_ids": [item["id"]]}
    )
    assert len(event["request"]["query_preview"]) == 160


async def test_a_search_without_filters_or_matches_is_told_in_few_words(service: Service) -> None:
    await service.search("at 10")
    [event] = told(service)
    assert timed(event) == a_call(
        "search_context",
        request={"query_preview": "at 10", "query_length": 5},
        response={"result_count": 0, "result_ids": []},
    )


# --- fetch_context ---


@pytest.mark.parametrize("name", ["id", "document_id"])
async def test_a_fetch_is_told_with_the_name_its_id_came_under(service: Service, name: str) -> None:
    item = await service.save("Owl at 10", topic="Birds")
    told(service)
    await service.call("fetch_context", offset=0, **{name: item["id"]})
    [event] = told(service)
    assert timed(event) == a_call(
        "fetch_context",
        request={"id": item["id"], "used_document_id_alias": name == "document_id"},
        response={"id": item["id"], "topic": "Birds", "branch_state": "active", "modality": "text"},
    )


# --- The owner's tools ---


async def test_a_listing_is_told_by_its_filters_and_ids(service: Service) -> None:
    filters = {"filter_topic": "Birds", "filter_origin": "user_asserted", "created_after": "2026-05-01"}
    item = await service.save("Owl at 10", topic="Birds", origin="user_asserted")
    await service.save("Owl at 20", topic="Birds", origin="user_asserted")
    told(service)
    page = await service.call("list_context", "default", limit=1, created_before=NOON + 1, **filters)
    await service.call(
        "list_context", "default", limit=1, created_before=NOON + 1, cursor=page["next_cursor"], **filters
    )
    first, second = told(service)
    request = {**filters, "created_after": 1_777_593_600_000, "created_before": NOON + 1, "limit": 1}
    ids = [page["items"][0]["id"]]
    response = {"result_count": 1, "result_ids": ids, "has_next_cursor": True}
    assert timed(first) == a_call("list_context", client="default", request=request, response=response)
    assert second["response"]["has_next_cursor"] is False
    assert item["id"] in {*ids, *second["response"]["result_ids"]}


async def test_a_deprecation_is_told_in_the_event_of_its_commit_and_its_repetition_by_itself(service: Service) -> None:
    old, new = [(await service.save(f"Owl at {degrees}"))["id"] for degrees in (10, 20)]
    told(service)
    arguments = {"id": old, "superseding_id": new, "supersession_reason": "corrected", "initiator": "user"}
    for _ in range(2):
        await service.call("deprecate_context", "default", **arguments)
    committed, repeated = told(service)
    request = {"id": old, "superseding_id": new, "reason": "corrected", "initiator": "user"}
    assert committed == a_call(
        "deprecate_context", client="default", request=request, response={"previous_state": "active"}
    )
    assert timed(repeated) == a_call(
        "deprecate_context", client="default", request=request, response={"previous_state": "deprecated"}
    )


# --- Calls that fail ---


FORBIDDEN = {"content": f"{CANARY} at 10", "topic": "Birds", "branch_state": "merged"}
FAILURES: dict[str, tuple[str, dict[str, Any], dict[str, Any], int]] = {
    "a state that is not granted": (
        "save_context",
        FORBIDDEN,
        {
            "topic": "Birds",
            "branch_state": "merged",
            "content_length": 19,
            "image_present": False,
            "artifact_ref_count": 0,
        },
        403,
    ),
    "a save without content": (
        "save_context",
        {"content": " "},
        {"content_length": 1, "image_present": False, "artifact_ref_count": 0},
        400,
    ),
    "a blank query": ("search_context", {"query": " "}, {"query_preview": "", "query_length": 1}, 400),
    "an unknown id": (
        "fetch_context",
        {"document_id": "unknown"},
        {"id": "unknown", "used_document_id_alias": True},
        404,
    ),
    "an id that cannot be one": ("fetch_context", {"id": f"{CANARY}/x"}, {"used_document_id_alias": False}, 404),
    "arguments of a wrong type": ("save_context", {"content": [CANARY], "topic": "Birds"}, {}, 400),
    "a missing argument": ("search_context", ALL_FILTERS, {}, 400),
    "a limit out of bounds": ("search_context", {"query": CANARY, "limit": 21}, {}, 400),
}


@pytest.mark.parametrize(("tool", "arguments", "request_", "status"), FAILURES.values(), ids=FAILURES)
async def test_a_failed_call_is_told_with_the_error_it_was_answered(
    service: Service, tool: str, arguments: dict[str, Any], request_: dict[str, Any], status: int
) -> None:
    with pytest.raises(ToolError) as answered:
        await service.call(tool, **arguments)
    [event] = told(service)
    error = {"code": answered.value.code, "message": answered.value.message, "status_code": status}
    assert timed(event) == a_call(tool, "error", request=request_, error=error)
    assert answered.value.status == status
    assert CANARY not in str(event)


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (
            Unavailable("The model cannot be reached."),
            {"code": "unavailable", "message": "The model cannot be reached.", "status_code": 503},
        ),
        (
            RuntimeError(CANARY),
            {
                "code": "internal",
                "message": "Something unexpected happened; the log has the details.",
                "status_code": 500,
            },
        ),
    ],
    ids=["foreseen", "unforeseen"],
)
async def test_a_failed_save_is_told_once_and_as_a_failure(failure: Exception, error: dict[str, Any]) -> None:
    service = Service(models=plane_models(embedder=FailingEmbedder(errors=[failure])))
    with pytest.raises(ToolError):
        await service.save(**ALL_OF_A_SAVE)
    [event] = told(service)
    assert timed(event) == a_call("save_context", "error", request=TOLD_OF_IT, error=error)


async def test_of_a_list_of_any_length_the_trail_keeps_the_beginning(service: Service) -> None:
    ids = [f"memory-{number}" for number in range(50_000)]
    with pytest.raises(ToolError):
        await service.call("consolidate_context", "default", source_ids=ids)
    [event] = told(service)
    assert event["request"]["source_ids"] == ids[:100]


@pytest.mark.parametrize("tool", ["nothing", "save_context"])
async def test_a_tool_that_does_not_exist_for_a_client_is_told_by_its_name_alone(service: Service, tool: str) -> None:
    with pytest.raises(ProtocolError) as answered:
        await service.call(tool, "reader", **ALL_OF_A_SAVE)
    [event] = told(service)
    error = {"code": "invalid_argument", "message": str(answered.value), "status_code": 400}
    assert timed(event) == a_call(tool, "error", client="reader", request={}, error=error)


# --- Retrieval telemetry ---


async def test_a_retrieval_event_has_the_whole_query_every_filter_and_the_ranked_ids() -> None:
    service = Service(settings=environment(RETRIEVAL_EVENT_LOGGING_ENABLED="true"))
    saved = {"topic": "Birds", "origin": "user_asserted"}
    far, near = [await service.save(f"Owl at {degrees}", **saved) for degrees in (70, 10)]
    assert told(service, EventKind.RETRIEVAL) == []
    await service.search(LONG_QUERY, **ALL_FILTERS)
    await service.search("at 10", filter_topic="Fish")
    await service.fetch(near["id"])
    common = {"event_type": "retrieval", "client_id": "agent", "collection": "memory_vectors"}
    assert told(service, EventKind.RETRIEVAL) == [
        {
            **common,
            "tool_name": "search_context",
            "query": LONG_QUERY,
            **TOLD_FILTERS,
            "results": [{"id": near["id"], "score": 1.0}, {"id": far["id"], "score": 0.5}],
        },
        {
            **common,
            "tool_name": "search_context",
            "query": "at 10",
            "filter_topic": "Fish",
            "filter_state": "active",
            "limit": 5,
            "results": [],
        },
        {**common, "tool_name": "fetch_context", "fetch_id": near["id"]},
    ]


async def test_a_call_that_fails_or_writes_leaves_no_retrieval_event() -> None:
    service = Service(settings=environment(RETRIEVAL_EVENT_LOGGING_ENABLED="true"))
    await service.save(**ALL_OF_A_SAVE)
    for tool, arguments in (("search_context", {"query": " "}), ("fetch_context", {"id": "unknown"})):
        with pytest.raises(ToolError):
            await service.call(tool, **arguments)
    assert told(service, EventKind.RETRIEVAL) == []


async def test_a_retrieval_event_stands_beside_the_event_of_its_call(
    firestore_stores: Stores, firestore: AsyncClient
) -> None:
    service = Service(settings=environment(RETRIEVAL_EVENT_LOGGING_ENABLED="true"), stores=firestore_stores)
    await service.search("at 10")
    [call] = await firestore.collection("memory_events").get()
    [retrieval] = await firestore.collection("retrieval_query_events").get()
    assert call.id == retrieval.id == call.get("event_id") == retrieval.get("event_id")


# --- Whatever is called ---


async def test_no_content_image_credential_or_artifact_ref_is_in_any_event() -> None:
    seeing = plane_models(
        embedder=FailingEmbedder(errors=[RuntimeError(CANARY)]), describer=SeeingImages(f"{CANARY} at 10")
    )
    settings = environment(RETRIEVAL_EVENT_LOGGING_ENABLED="true", MCP_URL_TOKENS="true")
    service = Service(settings=settings, models=seeing)
    image = {"image_base64": PNG_BASE64, "image_mime_type": "image/png"}
    calls: list[dict[str, Any]] = [
        {},
        {},
        {},
        image,
        image,
        {"branch_state": "merged"},
        {"confidence": CANARY},
        {"artifact_refs": [CANARY] * 51},
        {"image_base64": CANARY, "image_mime_type": "image/png"},
        {"derived_from": [f"{CANARY}/x"]},
    ]
    for changed in calls:
        answer = await service.rpc("tools/call", {"name": "save_context", "arguments": ALL_OF_A_SAVE | changed})
        if not answer["isError"]:
            await service.search("at 10", "reader", filter_state="wip")
            await service.fetch(answer["structuredContent"]["item"]["id"], "reader")
    await service.http.post(path_of("agent"), params={"auth_token": TOKENS["agent"]}, content=CANARY)
    written = str(service.events)
    assert len(service.events) > len(calls)
    for secret in (CANARY, PNG_BASE64, *TOKENS.values()):
        assert secret not in written


async def test_a_refused_merge_of_many_ids_leaves_an_event_with_the_first_hundred(service: Service) -> None:
    ids = [f"memory-{number}" for number in range(50_000)]
    with pytest.raises(ToolError):
        await service.call("consolidate_context", "default", source_ids=ids)
    assert service.events[-1].fields["request"]["source_ids"] == ids[:100]
