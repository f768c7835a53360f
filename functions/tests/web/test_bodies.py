"""What a body may be: at most 1 MiB of JSON, one message."""

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncGenerator

import httpx2
import pytest

from builders import JSON_HEADERS, Service, bearer, path_of
from images import PNG
from metacortex.web import limits
from web.edge import BODY_LIMIT, LISTING, VALID, ask, cors_headers
from web.wire import Wire

MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}
PARSE_ERROR, INVALID_REQUEST = -32700, -32600


def padded(size: int) -> bytes:
    """A valid message with white space up to a size."""
    return json.dumps(LISTING).encode().ljust(size)


# --- Size ---


async def test_a_body_of_exactly_the_limit_is_read(service: Service) -> None:
    response = await service.http.post(path_of("agent"), content=padded(BODY_LIMIT), headers=VALID)
    assert response.status_code == 200


@pytest.mark.parametrize("declared", [str(BODY_LIMIT + 1), "9" * 5_000])
async def test_a_body_declared_too_large_is_refused(service: Service, declared: str) -> None:
    response = await ask(service, headers=VALID | {"content-length": declared})
    assert response.status_code == 413
    assert "1,048,576" in response.json()["error"]["message"]


@pytest.mark.parametrize("declared", ["10", "0", "-1", "1e9", "", "0x10"])
async def test_a_body_that_grows_too_large_is_cut_off_early_whatever_it_declared(
    service: Service, declared: str
) -> None:
    taken = 0

    async def body() -> AsyncGenerator[bytes]:
        nonlocal taken
        for _ in range(80):
            taken += 65_536
            yield b" " * 65_536

    headers = VALID | ({"content-length": declared} if declared else {})
    response = await service.http.post(path_of("agent"), content=body(), headers=headers)
    assert response.status_code == 413
    assert taken <= BODY_LIMIT + 65_536


async def test_a_body_that_never_ends_is_given_up(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.1)

    async def body() -> AsyncGenerator[bytes]:
        yield b'{"jsonrpc"'
        await asyncio.Event().wait()

    response = await service.http.post(path_of("agent"), content=body(), headers=VALID)
    assert response.status_code == 400
    assert "did not arrive" in response.json()["error"]["message"]


@pytest.mark.parametrize("profile", ["default", "agent"])
def test_an_image_of_twenty_megabytes_is_refused_in_json_and_at_once(wire: Wire, profile: str) -> None:
    image = base64.b64encode(PNG + bytes(20_000_000)).decode()
    arguments = {"image_base64": image, "image_mime_type": "image/png"}
    message = LISTING | {"method": "tools/call", "params": {"name": "save_context", "arguments": arguments}}
    with httpx2.Client(base_url=f"http://127.0.0.1:{wire.port}", trust_env=False, timeout=5) as client:
        response = client.post(path_of(profile), json=message, headers=JSON_HEADERS | bearer(profile))
    assert (response.status_code, response.json()["error"]["code"]) == (413, -32000)
    assert "1,048,576" in response.json()["error"]["message"]


# --- Content type ---


@pytest.mark.parametrize(
    "content_type", ["Application/JSON", "application/json; charset=utf-8", " application/json ;x"]
)
@pytest.mark.parametrize("era", [{}, MODERN], ids=["handshake", "modern"])
async def test_json_is_recognised_in_any_spelling(service: Service, era: dict[str, str], content_type: str) -> None:
    response = await ask(service, headers=VALID | era | {"content-type": content_type})
    assert "application/json" in response.headers["content-type"]
    assert response.json()["id"] == 1


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/plain",
        "text/json",
        "application/jsonp",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=application/json",
        "application/json, text/plain",
        "*/*",
    ],
)
async def test_any_other_content_type_is_refused(service: Service, content_type: str) -> None:
    response = await ask(service, headers=VALID | {"content-type": content_type})
    assert (response.status_code, response.json()["error"]["code"]) == (415, -32000)


async def test_a_body_without_a_content_type_is_refused(service: Service) -> None:
    headers = {name: value for name, value in VALID.items() if name != "content-type"}
    assert (await ask(service, headers=headers)).status_code == 415


@pytest.mark.parametrize("accept", ["", "*/*", "application/json", "text/event-stream", "text/html", "image/png;q=0"])
@pytest.mark.parametrize("era", [{}, MODERN], ids=["handshake", "modern"])
async def test_the_answer_is_json_whatever_the_client_accepts(
    service: Service, era: dict[str, str], accept: str
) -> None:
    response = await ask(service, headers=VALID | era | {"accept": accept})
    assert response.headers["content-type"] == "application/json"
    assert response.json()["id"] == 1


# --- JSON ---

BROKEN = {
    "empty": b"",
    "blank": b" \n ",
    "cut off": b'{"jsonrpc":"2.0","id":1,"method":"tools/li',
    "two messages": padded(0) * 2,
    "trailing comma": b'{"jsonrpc":"2.0","id":1,"method":"tools/list",}',
    "single quotes": b"{'jsonrpc':'2.0','id':1,'method':'ping'}",
    "NaN": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}',
    "Infinity": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":-Infinity}}',
    "half a surrogate pair": b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
    "half a surrogate pair in a key": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"\\udc00":1}}',
    "not UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
    "UTF-16": '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
    "raw control character": b'{"jsonrpc":"2.0","id":1,"method":"pi\x00ng"}',
    "100,000 brackets": b"[" * 100_000,
    "100,000 pairs of brackets": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":'
    + b'{"x":' * 100_000
    + b"1"
    + b"}" * 100_001,
    "a third of a million lists": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":['
    + b"[]," * 340_000
    + b"0]}}",
    "a number of 100,000 digits": b'{"jsonrpc":"2.0","id":' + b"1" * 100_000 + b',"method":"ping"}',
    "gzip": gzip.compress(padded(0)),
    "form": b"jsonrpc=2.0&id=1&method=ping",
    "html": b"<html></html>",
}
NO_MESSAGE = {
    "null": b"null",
    "number": b"1",
    "text": b'"ping"',
    "batch": json.dumps([LISTING, LISTING]).encode(),
    "empty batch": b"[]",
    "empty object": b"{}",
    "no version": b'{"id":1,"method":"ping"}',
    "version 1.0": b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
    "version as a number": b'{"jsonrpc":2.0,"id":1,"method":"ping"}',
    "no method": b'{"jsonrpc":"2.0","id":1}',
    "method as a number": b'{"jsonrpc":"2.0","id":1,"method":7}',
    "method null": b'{"jsonrpc":"2.0","id":1,"method":null,"result":{}}',
    "id null": b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
    "id true": b'{"jsonrpc":"2.0","id":true,"method":"ping"}',
    "id as a fraction": b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
    "id as an object": b'{"jsonrpc":"2.0","id":{"canary":1},"method":"ping"}',
    "params as a list": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":["canary"]}',
    "params as a text": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":"canary"}',
    "result without an id": b'{"jsonrpc":"2.0","result":{}}',
    "result as a text": b'{"jsonrpc":"2.0","id":1,"result":"canary"}',
    "error without a code": b'{"jsonrpc":"2.0","id":1,"error":{"message":"canary"}}',
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("era", [{}, MODERN], ids=["handshake", "modern"])
async def test_what_is_no_json_is_a_parse_error(service: Service, era: dict[str, str], body: bytes) -> None:
    response = await service.http.post(path_of("agent"), content=body, headers=VALID | era)
    assert response.status_code == 400
    error = {
        "code": PARSE_ERROR,
        "message": "The body is not valid JSON in UTF-8, escapes half of a surrogate pair, or holds more than "
        "10,000 lists, objects and names.",
    }
    assert response.json() == {"jsonrpc": "2.0", "id": None, "error": error}
    assert service.events[0].fields["reason"] == "malformed"


@pytest.mark.parametrize("body", NO_MESSAGE.values(), ids=NO_MESSAGE)
@pytest.mark.parametrize("era", [{}, MODERN], ids=["handshake", "modern"])
async def test_what_is_no_single_json_rpc_message_is_refused_without_quoting_it(
    service: Service, era: dict[str, str], body: bytes
) -> None:
    response = await service.http.post(path_of("agent"), content=body, headers=VALID | era)
    assert response.status_code == 400
    answer = response.json()
    assert (answer["id"], answer["error"]["code"]) == (None, INVALID_REQUEST)
    assert "canary" not in response.text
    assert service.events[0].fields["reason"] == "malformed"


@pytest.mark.parametrize("text", ["[{" * 250_000, "::" * 250_000, '"[' * 250_000, "\\{" * 150_000])
async def test_a_text_may_hold_any_number_of_brackets(service: Service, text: str) -> None:
    body = json.dumps(LISTING | {"params": {"_meta": {"text": text}}})
    assert (await service.http.post(path_of("agent"), content=body, headers=VALID)).status_code == 200


async def test_a_message_may_hold_ten_thousand_lists_objects_and_names(service: Service) -> None:
    # Four are around the lists, with six names.
    for lists, status in ((9_990, 200), (9_991, 400)):
        body = json.dumps(LISTING | {"params": {"_meta": {"x": [[]] * lists}}})
        assert (await service.http.post(path_of("agent"), content=body, headers=VALID)).status_code == status


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
async def test_an_encoded_body_is_refused_and_never_unpacked(service: Service, encoding: str) -> None:
    bomb = gzip.compress(bytes(5_000_000))
    response = await service.http.post(path_of("agent"), content=bomb, headers=VALID | {"content-encoding": encoding})
    assert response.status_code == 400
    assert "encoding" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}',
    ],
)
async def test_a_message_that_asks_nothing_is_acknowledged(service: Service, body: bytes) -> None:
    response = await service.http.post(path_of("agent"), content=body, headers=VALID)
    assert (response.status_code, response.content, cors_headers(response)) == (202, b"", {})
    assert service.events == []


@pytest.mark.parametrize("message_id", [0, -1, 2**63, "", "a", "雪", "\u0000"])
async def test_every_valid_id_comes_back(service: Service, message_id: int | str) -> None:
    body = json.dumps({**LISTING, "id": message_id})
    response = await service.http.post(path_of("agent"), content=body, headers=VALID)
    assert response.json()["id"] == message_id
