"""`metacortex indexes`: the index file of this repository, and that of any other collection."""

import json

import pytest
from typer.testing import CliRunner

from ops.checkout import ROOT
from ops.cli import app


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["indexes", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_file_in_the_repository_is_that_of_the_defaults() -> None:
    assert printed() == (ROOT / "firestore.indexes.json").read_text()


def test_another_collection_size_and_field_get_their_own() -> None:
    found = json.loads(printed("--collection", "mine", "--dimensions", "1536", "--field", "embedding_2"))
    assert {index["collectionGroup"] for index in found["indexes"]} == {"mine", "mine_parts", "oauth_clients"}
    vectors = [field for index in found["indexes"] for field in index["fields"] if "vectorConfig" in field]
    assert vectors == [{"fieldPath": "embedding_2", "vectorConfig": {"dimension": 1536, "flat": {}}}] * 8
    expiring = [field["collectionGroup"] for field in found["fieldOverrides"] if field.get("ttl")]
    events = ["memory_events", "retrieval_query_events"]
    assert expiring == ["mine_write_fingerprints", *events, "oauth_requests", "oauth_grants", "owner_sessions"]


@pytest.mark.parametrize("dimensions", ["0", "2049", "many"])
def test_a_size_that_firestore_cannot_hold_is_a_usage_error(dimensions: str) -> None:
    assert CliRunner().invoke(app, ["indexes", "--dimensions", dimensions]).exit_code == 2
