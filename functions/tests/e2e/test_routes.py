"""The same smoke on every model route, with the function as production serves it."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from builders import ADMIN_TOKEN, environment
from gemini_api import GeminiApi, surroundings
from images import PNG
from ops.checkout import ROOT
from ops.function import running_function
from web.wire import serving

pytestmark = pytest.mark.slow

KEY = "a-gemini-key-of-the-tests"


def smoke(url: str, *arguments: str) -> dict[str, Any]:
    command = [str(ROOT / "scripts/metacortex"), "smoke", "--url", url, "--json", *arguments]
    surroundings = {"PATH": "/usr/bin:/bin", "HOME": str(ROOT), "MCP_ADMIN_TOKEN": ADMIN_TOKEN}
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)


@pytest.mark.parametrize("route", ["local", "gemini", "vertex"])
def test_a_text_and_an_image_are_saved_found_and_fetched(
    emulator_host: str, project: str, route: str, tmp_path: Path
) -> None:
    image = tmp_path / "image.png"
    image.write_bytes(PNG)
    api = GeminiApi()
    with serving(api.app) as wire:
        settings = environment(
            MODEL_PROVIDER=route,
            GEMINI_API_KEY=KEY,
            FIRESTORE_EMULATOR_HOST=emulator_host,
            GCLOUD_PROJECT=project,
            **surroundings(f"http://127.0.0.1:{wire.port}", tmp_path),
        )
        with running_function(settings) as function:
            report = smoke(function.url, "--image-file", str(image))
    assert report["ok"], report
    asked = {path.split("/models/")[0] for path, _ in api.asked}
    expected = {
        "local": set[str](),
        "gemini": {"/v1"},
        "vertex": {
            f"/v1beta1/projects/{project}/locations/{place}/publishers/google" for place in ("us-central1", "global")
        },
    }
    assert asked == expected[route]
