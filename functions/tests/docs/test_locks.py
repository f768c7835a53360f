"""Both locks are what pyproject.toml asks for: complete, satisfied, and in agreement. `./scripts/lock` makes them again."""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from ops.checkout import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
DEPLOYED = ROOT / "functions/requirements.txt"
DEVELOPMENT = ROOT / "requirements-dev.txt"


def asked_for(lock: Path) -> list[Requirement]:
    wanted: list[str] = list(PROJECT["project"]["dependencies"])
    if lock == DEVELOPMENT:
        # Those of an evaluation have a lock of their own: functions/tests/ops/test_minilm.py.
        groups = [group for name, group in PROJECT["dependency-groups"].items() if name != "eval"]
        wanted += [entry for group in groups for entry in group if isinstance(entry, str)]
    return [Requirement(text) for text in wanted]


def locked(lock: Path) -> dict[str, Version]:
    """What a lock pins for this platform, by canonical name."""
    pins = (Requirement(line) for line in re.findall(r"^([^\s#].*==.*?)(?: \\)?$", lock.read_text(), re.MULTILINE))
    here = (pin for pin in pins if pin.marker is None or pin.marker.evaluate())
    return {canonicalize_name(pin.name): Version(next(iter(pin.specifier)).version) for pin in here}


def needed_by(requirement: Requirement) -> Iterator[Requirement]:
    """What a package asks for in its turn, with the extras that are wanted of it, on this platform."""
    for text in distribution(requirement.name).requires or []:
        needed = Requirement(text)
        extras = ["", *requirement.extras]
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
            yield needed


def closure(wanted: list[Requirement]) -> dict[str, list[Requirement]]:
    """Everything that is needed, directly or not, with each demand that is made of it."""
    demands: dict[str, list[Requirement]] = {}
    seen: set[str] = set()
    while wanted:
        requirement = wanted.pop()
        demands.setdefault(canonicalize_name(requirement.name), []).append(requirement)
        if (known := str(requirement)) not in seen:
            seen.add(known)
            wanted += needed_by(requirement)
    return demands


@pytest.mark.parametrize("lock", [DEPLOYED, DEVELOPMENT], ids=lambda lock: lock.name)
def test_a_lock_pins_all_that_is_needed_and_nothing_else(lock: Path) -> None:
    pins = locked(lock)
    demands = closure(asked_for(lock))
    assert set(pins) == set(demands), "the lock is stale; run ./scripts/lock"
    unsatisfied = [
        str(demand)
        for name, made in demands.items()
        for demand in made
        if not demand.specifier.contains(pins[name], prereleases=True)
    ]
    assert unsatisfied == [], "the lock is stale; run ./scripts/lock"


def test_the_locks_agree() -> None:
    deployed, development = locked(DEPLOYED), locked(DEVELOPMENT)
    assert {name: development.get(name) for name in deployed} == deployed


@pytest.mark.parametrize("lock", [DEPLOYED, DEVELOPMENT], ids=lambda lock: lock.name)
def test_what_is_installed_is_checked_by_hash_and_no_registry_is_named(lock: Path) -> None:
    text = lock.read_text()
    assert len(re.findall(r"^[^\s#].*==", text, re.MULTILINE)) <= text.count("--hash=sha256:")
    assert "://" not in text


def test_the_local_models_are_not_deployed() -> None:
    assert set(locked(DEPLOYED)).isdisjoint({"wordllama", "numpy", "tokenizers", "typer", "pytest"})
