"""Every check and test, each under its own heading, and which of them failed. Run by ./scripts/test."""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from ops.checkout import ROOT
from ops.terminal import heading, show


@dataclass(frozen=True)
class Check:
    """One command that passes or fails."""

    name: str
    command: tuple[str, ...]


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0 if everything passed, 1 if anything failed."""
    options = parser().parse_args(arguments)
    began = time.monotonic()
    try:
        failed = [check.name for check in checks_for(options) if not _passes(check)]
    except KeyboardInterrupt:
        return 130
    outcome = f"{', '.join(failed)} failed" if failed else "everything passed"
    show(["", heading("== summary =="), outcome, f"in {time.monotonic() - began:.0f} s"])
    return 1 if failed else 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parsed = argparse.ArgumentParser(
        prog="scripts/test", description="Checks format, lint, types and import rules, and runs the tests."
    )
    parsed.add_argument("--fast", action="store_true", help="leave out slow tests and coverage: the inner loop")
    parsed.add_argument("pytest", nargs="*", metavar="-- ARGUMENT", help="arguments for pytest, after --")
    return parsed


def checks_for(options: argparse.Namespace) -> list[Check]:
    """What to run, in order."""
    tools = Path(sys.executable).parent
    coverage = ("-m", "not slow") if options.fast else ("--cov", "--cov-branch")
    return [
        Check("format", (str(tools / "ruff"), "format", "--check")),
        Check("lint", (str(tools / "ruff"), "check")),
        Check("types", (sys.executable, "-m", "pyright")),
        Check("import rules", (sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()")),
        Check("tests", (sys.executable, "-m", "pytest", "-n", "2", *coverage, *options.pytest)),
    ]


def _passes(check: Check) -> bool:
    show(["", heading(f"== {check.name} ==")])
    # A newer pyright than the locked one is no news for this run.
    env = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    return subprocess.run(check.command, check=False, cwd=ROOT, env=env).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
