"""The checks come in one order: a request is answered for the first thing that is wrong with it."""

from collections.abc import AsyncGenerator, Sequence

import pytest

from builders import JSON_HEADERS, Service, bearer, path_of
from web.edge import BODY_LIMIT, ORIGIN, REFUSALS, Sent, ask

CHECKS = {"path": 404, "origin": 403, "token": 401, "method": 405, "size": 413, "content type": 415, "JSON": 400}


async def status(service: Service, wrong: Sequence[str], method: str = "POST") -> int:
    """The status of a request that is wrong in these points only."""
    body = b"{" if "JSON" in wrong else b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    headers = {
        **JSON_HEADERS,
        **bearer("reader" if "token" in wrong else "agent"),
        "origin": "https://evil.example" if "origin" in wrong else ORIGIN,
        "content-type": "text/html" if "content type" in wrong else "application/json",
    }
    response = await service.http.request(
        "DELETE" if "method" in wrong else method,
        path_of("nobody" if "path" in wrong else "agent"),
        headers=headers,
        content=body + b" " * (BODY_LIMIT if "size" in wrong else 0),
    )
    assert ("access-control-allow-origin" in response.headers) == (response.status_code not in {403, 404})
    return response.status_code


@pytest.mark.parametrize("passed", range(len(CHECKS) + 1))
async def test_each_check_comes_before_all_later_ones(service: Service, passed: int) -> None:
    wrong = list(CHECKS)[passed:]
    assert await status(service, wrong) == (CHECKS[wrong[0]] if wrong else 200)


@pytest.mark.parametrize("check", CHECKS)
async def test_each_check_is_enough_to_refuse_a_request(service: Service, check: str) -> None:
    assert await status(service, [check]) == CHECKS[check]


@pytest.mark.parametrize(("wrong", "expected"), [("path", 404), ("origin", 403), ("token", 204)])
async def test_a_preflight_comes_after_path_and_origin_and_before_the_token(
    service: Service, wrong: str, expected: int
) -> None:
    later = [check for check in CHECKS if check not in {"path", "origin", "method"}]
    assert await status(service, [wrong, *later], method="OPTIONS") == expected


@pytest.mark.parametrize("refused", [sent for sent in REFUSALS if sent.reason != "malformed"], ids=str)
async def test_a_request_refused_by_its_head_is_refused_before_its_body_is_read(
    service: Service, refused: Sent
) -> None:
    read: list[bytes] = []

    async def body() -> AsyncGenerator[bytes]:
        read.append(refused.content)
        yield refused.content

    declared = {"content-length": str(len(refused.content))}
    response = await service.http.request(
        refused.method, path_of("agent"), content=body(), headers={**refused.headers, **declared}
    )
    assert (response.status_code, read) == (refused.status, [])


async def test_a_request_that_passes_every_check_is_served(service: Service) -> None:
    assert "result" in (await ask(service)).json()
