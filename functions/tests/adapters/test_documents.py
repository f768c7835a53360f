"""The documents in Firestore: the shapes other versions and operators rely on, and those that MetaCortex 0.3 left."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient
from google.cloud.firestore_v1.vector import Vector

from builders import NOON, Service, ToolError, environment, plane_models
from fakes import SeeingImages
from images import PNG_BASE64
from metacortex.bootstrap import Stores

DAY = 24 * 60 * 60 * 1000


async def documents(firestore: AsyncClient, collection: str) -> dict[str, dict[str, Any]]:
    return {snapshot.id: snapshot.to_dict() or {} async for snapshot in firestore.collection(collection).stream()}


def moment(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


@pytest.fixture
def service(firestore_stores: Stores) -> Service:
    return Service(stores=firestore_stores)


@pytest.mark.parametrize("mode", ["vector", "hybrid"])
async def test_a_stored_vector_without_direction_is_near_to_nothing_and_spoils_no_order(
    firestore_stores: Stores, firestore: AsyncClient, mode: str
) -> None:
    service = Service(settings=environment(RETRIEVAL_MODE=mode), stores=firestore_stores)
    ids = [(await service.save(f"Fact at {degrees}"))["id"] for degrees in (0, 60)]
    lost = (await service.save("Fact at 30"))["id"]
    await firestore.collection("memory_vectors").document(lost).update({"embedding": Vector([0.0, 0.0])})
    matches = await service.search("at 0")
    assert [match["id"] for match in matches] == [*ids, lost]
    assert [match["score"] for match in matches] == [1.0, 0.5, 0.0]


async def test_a_memory_is_stored_in_the_contracts_shape(service: Service, firestore: AsyncClient) -> None:
    item = await service.save(
        "  Fact\nat 90 ",
        topic="Birds",
        artifact_refs=["a.md"],
        valid_from="2026-01-01",
        origin="user_asserted",
        source_session="s1",
        derived_from=["x"],
        confidence=1,
    )
    [(memory_id, document)] = (await documents(firestore, "memory_vectors")).items()
    assert memory_id == item["id"]
    vector = document.pop("embedding")
    assert isinstance(vector, Vector)
    assert list(vector) == pytest.approx([0, 1])
    assert document == {
        "content": "Fact\nat 90",
        "summary": "Fact at 90",
        "embedding_space": "plane@2/plain",
        "terms": {
            "words": dict.fromkeys(["fact", "90", "bird", "1", "january", "2026", "a.md", "md"], True),
            "counts": {},
        },
        "metadata": {
            "module_name": "Birds",
            "branch_state": "active",
            "created_at": NOON,
            "updated_at": NOON,
            "modality": "text",
            "written_by": "agent",
            "artifact_refs": ["a.md"],
            "valid_from": 1_767_225_600_000,
            "provenance": {
                "origin": "user_asserted",
                "source_session": "s1",
                "derived_from": ["x"],
                "confidence": 1,
            },
        },
    }


async def test_an_image_leaves_its_kind_and_its_description_but_no_bytes(
    firestore_stores: Stores, service: Service, firestore: AsyncClient
) -> None:
    seeing = plane_models(describer=SeeingImages("A chart at 90"))
    await Service(stores=firestore_stores, models=seeing).save(
        "My chart", image_base64=PNG_BASE64, image_mime_type="image/png"
    )
    [document] = (await documents(firestore, "memory_vectors")).values()
    assert document["content"] == "My chart"
    assert document["retrieval_text"] == "My chart\n\nA chart at 90"
    assert document["media"] == {"kind": "inline_image", "mime_type": "image/png"}
    assert PNG_BASE64 not in str(document)


async def test_a_save_leaves_a_fingerprint_and_names_the_space(service: Service, firestore: AsyncClient) -> None:
    item = await service.save("Fact at 90")
    [(name, document)] = (await documents(firestore, "memory_vectors_write_fingerprints")).items()
    assert len(bytes.fromhex(name)) == 32
    assert document == {
        "id": item["id"],
        "dedupe_expires_at": NOON + 15 * 60 * 1000,
        "expires_at": moment(NOON + 30 * DAY),
        "updated_at": NOON,
    }
    assert await documents(firestore, "memory_vectors_meta") == {
        "space": {"current": "plane@2/plain", "spaces": {"plane@2/plain": "embedding"}}
    }


async def test_events_expire_after_ninety_days_and_hold_no_texts(service: Service, firestore: AsyncClient) -> None:
    item = await service.save("The secret of the owl, at 90", topic="Birds")
    await service.search("owl at 90")
    stored = await documents(firestore, "memory_events")
    saved, searched = sorted(stored.values(), key=lambda event: event["tool_name"])
    assert saved == {
        "event_id": saved["event_id"],
        "event_type": "tool_call",
        "timestamp": NOON,
        "expires_at": moment(NOON + 90 * DAY),
        "client_id": "agent",
        "tool_name": "save_context",
        "status": "success",
        "request": {"topic": "Birds", "content_length": 28, "image_present": False, "artifact_ref_count": 0},
        "response": {
            "id": item["id"],
            "topic": "Birds",
            "branch_state": "active",
            "modality": "text",
            "write_status": "created",
        },
    }
    assert searched["request"] == {"query_preview": "owl at 90", "query_length": 9}
    assert searched["response"] == {"result_count": 1, "result_ids": [item["id"]]}
    assert isinstance(searched["latency_ms"], int)
    assert set(stored) == {saved["event_id"], searched["event_id"]}


async def test_retrieval_events_are_kept_only_where_the_owner_wants_them(
    firestore_stores: Stores, service: Service, firestore: AsyncClient
) -> None:
    item = await service.save("owl at 90")
    await service.search("owl at 90")
    assert await documents(firestore, "retrieval_query_events") == {}
    wanting = Service(settings=environment(RETRIEVAL_EVENT_LOGGING_ENABLED="true"), stores=firestore_stores)
    await wanting.search("owl at 90", filter_topic="general")
    await wanting.fetch(item["id"])
    stored = (await documents(firestore, "retrieval_query_events")).values()
    fetched, searched = sorted(stored, key=lambda event: event["tool_name"])
    assert searched["query"] == "owl at 90"
    assert searched["filter_topic"] == "general"
    assert searched["filter_state"] == "active"
    assert searched["results"] == [{"id": item["id"], "score": 1.0}]
    assert fetched["fetch_id"] == item["id"]
    assert fetched["expires_at"] == moment(NOON + 90 * DAY)


LEGACY: dict[str, Any] = {
    "content": "Written by an older version " + "x" * 300,
    "embedding": Vector([0.0, 1.0]),
    "metadata": {
        "module_name": "old",
        "branch_state": "active",
        "created_at": 1_700_000_000_000,
        "modality": "text_image",
    },
}


async def test_documents_of_an_older_version_stay_readable(service: Service, firestore: AsyncClient) -> None:
    await firestore.collection("memory_vectors").document("old-1").set(LEGACY)
    item = await service.fetch("old-1")
    assert item["content"] == LEGACY["content"]
    assert item["metadata"] == {
        "topic": "old",
        "branch_state": "active",
        "modality": "mixed",
        "created_at": "2023-11-14T22:13:20.000Z",
    }


async def test_an_older_document_without_a_summary_is_found_with_one(service: Service, firestore: AsyncClient) -> None:
    await service.save("new at 0")
    await firestore.collection("memory_vectors").document("old-1").set(LEGACY)
    match, _ = await service.search("at 90")
    assert match["id"] == "old-1"
    assert match["summary"] == LEGACY["content"][:217] + "..."


@pytest.mark.parametrize("spoilt", [1e300, float("nan"), float("inf"), True, "soon", [1]])
async def test_a_stored_value_that_cannot_be_shown_spoils_no_answer(
    service: Service, firestore: AsyncClient, spoilt: Any
) -> None:
    await service.save("new at 0")
    known = {
        "branch_state": "active",
        "module_name": 7,
        "artifact_refs": "abc",
        "created_at": spoilt,
        "valid_from": spoilt,
    }
    await firestore.collection("memory_vectors").document("old-1").set({**LEGACY, "metadata": known})
    match, _ = await service.search("at 90", valid_at=1)
    assert match["id"] == "old-1"
    assert match["metadata"] == {"topic": "general", "branch_state": "active", "modality": "text"}
    assert (await service.fetch("old-1"))["metadata"] == match["metadata"]


SPOILT_PROVENANCE: list[Any] = [
    *({"origin": "user_asserted", "confidence": value} for value in (float("nan"), 1.5, True, "high", [1])),
    {"origin": "user_asserted", "source_session": 7, "derived_from": {"a": 1}},
]


@pytest.mark.parametrize("spoilt", SPOILT_PROVENANCE)
async def test_what_a_stored_provenance_cannot_mean_is_left_out(
    service: Service, firestore: AsyncClient, spoilt: Any
) -> None:
    await service.save("new at 0")
    document = {**LEGACY, "metadata": {**LEGACY["metadata"], "provenance": spoilt}}
    await firestore.collection("memory_vectors").document("old-1").set(document)
    match, _ = await service.search("at 90")
    assert match["metadata"]["provenance"] == {"origin": "user_asserted"}
    _, listed = (await service.call("list_context", "default"))["items"]
    assert listed["metadata"] == (await service.fetch("old-1"))["metadata"] == match["metadata"]


@pytest.mark.parametrize("spoilt", [7, "text", [1], True])
async def test_a_stored_field_of_another_kind_counts_as_none(
    service: Service, firestore: AsyncClient, spoilt: Any
) -> None:
    kept = (await service.save("new at 0"))["id"]
    memories = firestore.collection("memory_vectors")
    nothing = {"content": spoilt, "summary": 7, "retrieval_text": 7, "terms": spoilt, "parts": "x"}
    provenance = {**LEGACY["metadata"], "provenance": spoilt}
    await memories.document("old-1").set({**LEGACY, **nothing, "content": 7, "metadata": provenance})
    await memories.document("old-2").set({**LEGACY, **nothing, "metadata": spoilt})
    matches = await service.search("at 90")
    assert [(match["id"], match["summary"]) for match in matches] == [("old-1", ""), (kept, "new at 0")]
    listed = (await service.call("list_context", "default"))["items"]
    assert [item["id"] for item in listed] == [kept, "old-1"]
    assert "provenance" not in listed[1]["metadata"]
    item = await service.fetch("old-2")
    assert item["content"] == (spoilt if isinstance(spoilt, str) else "")
    assert item["metadata"] == {"topic": "general", "branch_state": "active", "modality": "text"}
    for name in ("old-1", "old-2"):
        answer = await service.call("deprecate_context", "default", id=name)
        assert answer["item"]["branch_state"] == "deprecated"


@pytest.mark.parametrize("unknown", ["archived", 7, ["active"]])
async def test_a_memory_in_a_state_that_this_version_does_not_know_is_not_active(
    service: Service, firestore: AsyncClient, unknown: Any
) -> None:
    document = {**LEGACY, "metadata": {**LEGACY["metadata"], "branch_state": unknown}}
    await firestore.collection("memory_vectors").document("old-1").set(document)
    with pytest.raises(ToolError) as refused:
        await service.fetch("old-1", "agent")
    assert refused.value.status == 404
    assert (await service.fetch("old-1", "default"))["metadata"]["branch_state"] == "deprecated"


async def test_a_collection_that_names_no_space_is_neither_searched_nor_written(
    service: Service, firestore: AsyncClient
) -> None:
    await firestore.collection("memory_vectors").document("old-1").set(LEGACY)
    for call in (service.save("new at 0"), service.search("at 0")):
        with pytest.raises(ToolError, match=r"unnamed embedding space.*plane@2/plain.*metacortex upgrade") as refused:
            await call
        assert (refused.value.status, refused.value.code) == (503, "embedding_space_mismatch")
    assert set(await documents(firestore, "memory_vectors")) == {"old-1"}
    assert await documents(firestore, "memory_vectors_meta") == {}


async def test_an_old_fingerprint_is_taken_over(service: Service, firestore: AsyncClient) -> None:
    await service.save("Fact at 90")
    [name] = await documents(firestore, "memory_vectors_write_fingerprints")
    fingerprint = firestore.collection("memory_vectors_write_fingerprints").document(name)
    await fingerprint.set({"id": "gone", "expires_at": NOON + DAY})
    item = await service.save("Fact at 90")
    assert (await fingerprint.get()).get("id") == item["id"]
