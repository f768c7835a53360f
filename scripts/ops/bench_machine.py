"""The machine of a benchmark: figures mean nothing without it."""

import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

PACKAGES = (
    "functions-framework",
    "gunicorn",
    "uvicorn",
    "starlette",
    "mcp",
    "pydantic",
    "google-cloud-firestore",
    "grpcio",
    "google-genai",
)
GIB = 2**30


def machine() -> Mapping[str, str]:
    """What it is, by names for the reader."""
    return {
        "processor": f"{os.cpu_count()} × {_processor()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / GIB:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
    }


def _processor() -> str:
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        if named := [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]:
            return named[0]
    with suppress(OSError):
        asked = ["sysctl", "-n", "machdep.cpu.brand_string"]
        told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        if told:
            return told
    return platform.machine()
