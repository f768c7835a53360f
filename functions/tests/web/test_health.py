"""The health answer needs nothing but the process."""

import subprocess
import sys

import httpx2
import pytest

from builders import PROJECT, Service
from logged import logged
from metacortex.bootstrap import application
from metacortex.settings import FUNCTION_NAME, REGION
from ops.checkout import FUNCTIONS

ENDPOINTS = ["/mcp", "/clients/:clientId/mcp"]

# Asks the deployed app for its health, and prints the status and whether anything heavy came along.
PROBE = """
import asyncio, sys, main

async def receive():
    return {"type": "http.request"}

async def send(message):
    if message["type"] == "http.response.start":
        print(message["status"])

scope = {"type": "http", "method": "GET", "path": "/health", "root_path": "", "query_string": b"", "headers": []}
asyncio.run(main.app(scope, receive, send))
print([name for name in ("mcp", "google.genai", "google.cloud.firestore", "wordllama") if name in sys.modules])
"""


@pytest.mark.parametrize("prefix", ["", f"/{FUNCTION_NAME}", f"/{PROJECT}/{REGION}/{FUNCTION_NAME}"])
@pytest.mark.parametrize("path", ["/healthz", "/health"])
async def test_health_names_the_service_and_its_endpoints(service: Service, path: str, prefix: str) -> None:
    response = await service.http.get(prefix + path)
    assert response.status_code == 200
    assert response.json() == {"ok": True, "service": "metacortex", "endpoints": ENDPOINTS}


async def test_a_head_request_gets_the_headers_alone(service: Service) -> None:
    response = await service.http.head("/health")
    assert response.status_code == 200
    assert response.headers["content-length"] == str(len((await service.http.get("/health")).content))


@pytest.mark.parametrize("method", ["POST", "DELETE", "OPTIONS"])
async def test_health_takes_no_other_method(service: Service, method: str) -> None:
    response = await service.http.request(method, "/health")
    assert (response.status_code, response.json()) == (405, {"error": "Method not allowed"})
    assert set(response.headers["allow"].split(", ")) == {"GET", "HEAD"}


@pytest.mark.parametrize(
    ("environment", "name"),
    [({}, "metacortex"), ({"SERVICE_NAME": " my-memory "}, "my-memory"), ({"SERVICE_NAME": " "}, "metacortex")],
)
async def test_health_needs_no_configuration(environment: dict[str, str], name: str) -> None:
    with logged() as log:
        app = application(environment)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as client:
            response = await client.get("/healthz")
    assert (response.status_code, response.json()["service"]) == (200, name)
    assert log.text == ""


@pytest.mark.slow
def test_health_imports_nothing_heavy() -> None:
    probe = subprocess.run(
        [sys.executable, "-c", PROBE], cwd=FUNCTIONS, env={}, capture_output=True, text=True, check=True
    )
    assert probe.stdout.splitlines() == ["200", "[]"]
