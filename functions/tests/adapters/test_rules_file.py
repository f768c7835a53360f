"""firestore.rules, in the emulator: a client of the database, whoever it is, reads and writes nothing."""

import base64
import json
from collections.abc import AsyncGenerator

import httpx2
import pytest

from ops.checkout import ROOT

COLLECTIONS = [
    "memory_vectors",
    "memory_vectors_meta",
    "memory_vectors_write_fingerprints",
    "memory_events",
    "anything",
]


@pytest.fixture
async def database(emulator_host: str, project: str) -> AsyncGenerator[httpx2.AsyncClient]:
    """The database as its clients reach it, under the rules of this repository."""
    async with httpx2.AsyncClient(base_url=f"http://{emulator_host}", trust_env=False) as http:
        rules = {"rules": {"files": [{"name": "firestore.rules", "content": (ROOT / "firestore.rules").read_text()}]}}
        loaded = await http.put(f"/emulator/v1/projects/{project}:securityRules", json=rules)
        assert loaded.status_code == 200
        http.base_url = f"http://{emulator_host}/v1/projects/{project}/databases/(default)/documents"
        yield http


def signed_in(claims: dict[str, object]) -> dict[str, str]:
    """The credential of a user as the emulator takes it: unsigned."""
    parts = ({"alg": "none", "typ": "JWT"}, {"sub": "someone", "user_id": "someone", **claims})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return {"authorization": f"Bearer {'.'.join(encoded)}."}


OWNER = {"authorization": "Bearer owner"}
DOCUMENT = {"fields": {"content": {"stringValue": "x"}}}


@pytest.mark.parametrize("collection", COLLECTIONS)
@pytest.mark.parametrize("who", [{}, signed_in({}), signed_in({"admin": True})], ids=["nobody", "a user", "an admin"])
async def test_a_client_reads_and_writes_nothing(
    database: httpx2.AsyncClient, collection: str, who: dict[str, str]
) -> None:
    assert (await database.patch(f"/{collection}/one", json=DOCUMENT, headers=OWNER)).status_code == 200
    answers = [
        await database.get(f"/{collection}/one", headers=who),
        await database.get(f"/{collection}", headers=who),
        await database.patch(f"/{collection}/one", json=DOCUMENT, headers=who),
        await database.post(f"/{collection}", json=DOCUMENT, headers=who),
        await database.delete(f"/{collection}/one", headers=who),
    ]
    assert {answer.status_code for answer in answers} == {403}
