"""What can be seen in the checkout alone: its commit, its locks, its tests, its rules and its runtime."""

import json
import os
import re
import sys
from datetime import date
from pathlib import Path
from typing import Any

from ops import tested
from ops.function import INHERITED
from ops.preflight_plan import Deployment
from ops.preflight_programs import run
from ops.preflight_report import check
from ops.processes import OpsError

# A Python that starts while other checks run; a busy machine is no fault.
_SECONDS = 120
_SHOWN = 3
# When Google deprecates each: lib/deploy/functions/runtimes/supported/types.js of firebase-tools 15.34.2.
_DEPRECATED = {
    "python311": date(2027, 10, 24),
    "python312": date(2028, 10, 2),
    "python313": date(2029, 10, 10),
    "python314": date(2030, 10, 10),
}
_LOCKS_TEST = "functions/tests/docs/test_locks.py"
_RULE = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | rules_version \s* = \s* (?: '2' | "2" ) \s* ;
    | service \s+ cloud\.firestore \s* \{
    | match \s+ (?: / (?: \w+ | \{ \w+ (?: =\*\* )? \} ) )+ \s* \{
    | allow \s+ \w+ (?: \s* , \s* \w+ )* \s* : \s* if \s+ false \s* ;
    | \}""",
    re.VERBOSE | re.DOTALL,
)


@check("tree")
async def clean_tree(deployment: Deployment) -> str:
    """What would be deployed is a commit."""
    if changed := tested.changes(deployment.root):
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        raise OpsError(
            f"Not everything is committed: {', '.join(changed[:_SHOWN])}{more}. Commit it, or put it away, so that what is"
            " deployed can be found again."
        )
    return f"The tree is the commit {_short(tested.commit(deployment.root))}."


@check("tests")
async def tests_passed(deployment: Deployment) -> str:
    """./scripts/test, and not only --fast, passed for this commit."""
    commit, passed = tested.commit(deployment.root), tested.recorded(deployment.root)
    if passed is None or passed.commit != commit:
        last = f" (the last were for {_short(passed.commit)})" if passed else ""
        raise OpsError(
            f"No tests passed for the commit {_short(commit)}{last}; run ./scripts/test on the committed tree. --fast and"
            " runs with arguments for pytest do not count."
        )
    how = "./scripts/test --hosts" if passed.amount == "hosts" else "./scripts/test"
    return f"{how} passed for {_short(commit)} at {passed.at}."


@check("locks")
async def fresh_locks(deployment: Deployment) -> str:
    """Both locks are what pyproject.toml asks for. The tests know how to tell; nothing is written."""
    own = os.pathsep.join(str(deployment.root / folder) for folder in ("scripts", "functions"))
    # Not FIRESTORE_EMULATOR_HOST: the tests would use that emulator, and begin by emptying it.
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    ended = await run(
        [sys.executable, "-B", "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", _LOCKS_TEST],
        seconds=_SECONDS,
        cwd=deployment.root,
        env={**inherited, "PYTHONPATH": own},
    )
    if ended.exit_code == 0:
        return "functions/requirements.txt and requirements-dev.txt fit pyproject.toml."
    if ended.exit_code == 1:
        raise OpsError(
            "The locks do not fit pyproject.toml; run ./scripts/lock, then ./scripts/test, and commit the locks."
        )
    raise OpsError(
        f"The locks could not be checked; run `functions/venv/bin/python -m pytest {_LOCKS_TEST}` to see why."
    )


@check("rules")
async def closed_rules(deployment: Deployment) -> str:
    """The rules let no client in. Whatever this cannot read, it takes for an open door."""
    name = _named(deployment.root, "rules")
    text = _text(deployment.root / name)
    position = 0
    while position < len(text):
        known = _RULE.match(text, position)
        if known is None:
            line = text.count("\n", 0, position) + 1
            raise OpsError(
                f"{name} may let somebody in by line {line}; every rule must be `allow read, write: if false;`, because only"
                " the function may reach the database, and rules do not bind it."
            )
        position = known.end()
    return f"{name} lets no client in."


@check("runtime")
async def supported_runtime(deployment: Deployment) -> str:
    """The runtime has a future, and functions/venv has its Python, with which the Firebase CLI discovers the function."""
    runtime = _runtime(deployment.root)
    deprecated = _DEPRECATED.get(runtime)
    if deprecated is None or deployment.now.date() >= deprecated:
        raise OpsError(
            f"firebase.json names the runtime {runtime}, which Google does not support, or no longer; name one of"
            f" {', '.join(name for name, until in _DEPRECATED.items() if until > deployment.now.date())}."
        )
    python = f"python{runtime[6]}.{runtime[7:]}"
    if not await _discovers(deployment.functions / "venv", python):
        raise OpsError(
            f"functions/venv has no {python} with firebase_functions, which the Firebase CLI needs to deploy {runtime}; remove"
            f" functions/venv and run this again with PYTHON={python} before it."
        )
    return f"{runtime}, supported until {deprecated}; functions/venv has its Python."


def index_file(root: Path) -> tuple[str, dict[str, Any]]:
    """The index file that is deployed: its name, and what it holds."""
    name = _named(root, "indexes")
    return name, _json(root / name)


async def _discovers(venv: Path, python: str) -> bool:
    if not (venv / "bin/activate").is_file():
        return False
    try:
        ended = await run([venv / "bin" / python, "-I", "-c", "import firebase_functions"], seconds=_SECONDS)
    except OSError:
        return False
    return ended.exit_code == 0


def _runtime(root: Path) -> str:
    listed = _json(root / "firebase.json").get("functions", [])
    codebases: list[dict[str, Any]] = listed if isinstance(listed, list) else [listed]
    return next((str(each.get("runtime")) for each in codebases if each.get("source") == "functions"), "(none)")


def _named(root: Path, what: str) -> str:
    """The file that firebase.json deploys to Firestore as its `rules` or `indexes`."""
    firestore = _json(root / "firebase.json").get("firestore")
    if not isinstance(firestore, dict) or not isinstance(firestore.get(what), str):
        raise OpsError(f"firebase.json names no {what} for Firestore; restore it from this repository.")
    return firestore[what]


def _json(file: Path) -> dict[str, Any]:
    try:
        held = json.loads(_text(file))
    except ValueError:
        held = None
    if not isinstance(held, dict):
        raise OpsError(f"{file.name} is not a JSON object; restore it from this repository.")
    return held


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise OpsError(f"{file.name} is missing; restore it from this repository.") from None


def _short(commit: str) -> str:
    return commit[:12]
