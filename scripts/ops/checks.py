"""Every check and test, each under its own heading, and which of them failed. Run by ./scripts/test.

Where everything passed on a tree that is a commit, that is kept for `metacortex preflight`.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ops import tested
from ops.checkout import ROOT
from ops.hosts import REQUESTED
from ops.terminal import heading, show


@dataclass(frozen=True)
class Check:
    """One command that passes or fails."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0 if everything passed, 1 if anything failed."""
    options = parser().parse_args(arguments)
    began = time.monotonic()
    commit = tested.clean_commit(ROOT)
    try:
        failed = [check.name for check in checks_for(options) if not _passes(check)]
    except KeyboardInterrupt:
        return 130
    outcome = f"{', '.join(failed)} failed" if failed else "everything passed"
    show(["", heading("== summary =="), outcome, f"in {time.monotonic() - began:.0f} s"])
    if not failed:
        _record(commit, options)
    return 1 if failed else 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parsed = argparse.ArgumentParser(
        prog="scripts/test", description="Checks format, lint, types and import rules, and runs the tests."
    )
    amount = parsed.add_mutually_exclusive_group()
    amount.add_argument("--fast", action="store_true", help="leave out slow tests and coverage: the inner loop")
    amount.add_argument(
        "--hosts",
        action="store_true",
        help="also run the Firebase emulators, MCP Inspector, clients and the conformance suite, fetched from npm",
    )
    parsed.add_argument("pytest", nargs="*", metavar="-- ARGUMENT", help="arguments for pytest, after --")
    return parsed


def checks_for(options: argparse.Namespace) -> list[Check]:
    """What to run, in order."""
    tools = Path(sys.executable).parent
    return [
        Check("format", (str(tools / "ruff"), "format", "--check")),
        Check("lint", (str(tools / "ruff"), "check")),
        Check("types", (sys.executable, "-m", "pyright")),
        Check("import rules", (sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()")),
        *_tests(options),
    ]


def _tests(options: argparse.Namespace) -> list[Check]:
    pytest = (sys.executable, "-m", "pytest", "-n", "2")
    coverage = ("--cov", "--cov-branch")
    if options.fast:
        return [Check("tests", (*pytest, "-m", "not slow and not hosts", *options.pytest))]
    if not options.hosts:
        return [Check("tests", (*pytest, "-m", "not hosts", *coverage, *options.pytest))]
    return [
        Check("hosts and clients", (sys.executable, "-m", "ops.hosts")),
        Check("tests", (*pytest, *coverage, *options.pytest), {REQUESTED: "1"}),
    ]


def _record(commit: str | None, options: argparse.Namespace) -> None:
    """Keep that everything passed for a commit: not for a part of the tests, nor for a tree that changed meanwhile."""
    if commit and not options.fast and not options.pytest and tested.clean_commit(ROOT) == commit:
        tested.record(ROOT, commit, "hosts" if options.hosts else "tests")


def _passes(check: Check) -> bool:
    show(["", heading(f"== {check.name} ==")])
    # A newer pyright than the locked one is no news for this run.
    env = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1", **check.env}
    return subprocess.run(check.command, check=False, cwd=ROOT, env=env).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
