"""./scripts/test: everything runs, and what failed is told at the end."""

import argparse
import sys
from pathlib import Path

import pytest

from deployable import commit, git
from ops import checks, tested
from ops.checks import Check


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of its own, for what passes here says nothing about this one."""
    git(tmp_path, "init", "--quiet")
    (tmp_path / ".gitignore").write_text(".metacortex/\n")
    commit(tmp_path)
    monkeypatch.setattr(checks, "ROOT", tmp_path)
    return tmp_path


def commands(*arguments: str) -> dict[str, str]:
    options = checks.parser().parse_args(arguments)
    return {check.name: " ".join(check.command) for check in checks.checks_for(options)}


def outcome(monkeypatch: pytest.MonkeyPatch, *arguments: str, **scripts: str) -> int:
    def prepared(_: argparse.Namespace) -> list[Check]:
        return [Check(name, (sys.executable, "-c", script)) for name, script in scripts.items()]

    monkeypatch.setattr(checks, "checks_for", prepared)
    return checks.main(list(arguments))


def test_a_failure_does_not_keep_the_rest_from_running(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    status = outcome(
        monkeypatch,
        lint="print('line too long'); exit(1)",
        types="print('no errors')",
        tests="print('2 failed'); exit(2)",
    )
    printed = capfd.readouterr().out
    assert status == 1
    assert [line for line in printed.splitlines() if line][:-1] == [
        *("== lint ==", "line too long", "== types ==", "no errors", "== tests ==", "2 failed"),
        *("== summary ==", "lint, tests failed"),
    ]


def test_everything_passing_is_told_too(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert outcome(monkeypatch, lint="pass", tests="pass") == 0
    assert "everything passed" in capfd.readouterr().out


def test_the_whole_run_measures_branches_and_the_inner_loop_leaves_out_what_is_slow() -> None:
    whole, fast = commands(), commands("--fast")
    assert list(whole) == list(fast) == ["format", "lint", "types", "import rules", "tests"]
    assert whole["tests"].endswith("-m pytest -n 2 -m not hosts --cov --cov-branch")
    assert fast["tests"].endswith("-m pytest -n 2 -m not slow and not hosts")


def test_real_hosts_are_fetched_first_and_then_tried_beside_everything_else() -> None:
    options = checks.parser().parse_args(["--hosts"])
    *_, fetched, tests = checks.checks_for(options)
    assert " ".join(fetched.command).endswith("-m ops.hosts")
    assert " ".join(tests.command).endswith("-m pytest -n 2 --cov --cov-branch")
    assert tests.env == {"METACORTEX_HOSTS": "1"}


def test_the_inner_loop_has_no_room_for_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        checks.parser().parse_args(["--fast", "--hosts"])
    assert "not allowed with" in capsys.readouterr().err


def test_a_check_sees_what_it_is_given(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    command = (sys.executable, "-c", "import os; print(os.environ['METACORTEX_HOSTS'])")
    monkeypatch.setattr(checks, "checks_for", lambda _: [Check("tests", command, {"METACORTEX_HOSTS": "asked for"})])
    assert checks.main([]) == 0
    assert "asked for" in capfd.readouterr().out


def test_what_follows_two_dashes_goes_to_pytest() -> None:
    assert commands("--fast", "--", "-k", "edge")["tests"].endswith("not hosts -k edge")


# --- What is kept of it ---


@pytest.mark.parametrize(("arguments", "amount"), [((), "tests"), (("--hosts",), "hosts")])
def test_a_whole_run_that_passes_is_kept_for_its_commit(
    monkeypatch: pytest.MonkeyPatch, root: Path, arguments: tuple[str, ...], amount: str
) -> None:
    assert outcome(monkeypatch, *arguments, tests="pass") == 0
    kept = tested.recorded(root)
    assert kept is not None
    assert (kept.commit, kept.amount) == (tested.commit(root), amount)
    assert tested.changes(root) == []


@pytest.mark.parametrize("arguments", [("--fast",), ("--", "-k", "edge")])
def test_a_part_of_the_tests_takes_nothing_from_what_passed_before(
    monkeypatch: pytest.MonkeyPatch, root: Path, arguments: tuple[str, ...]
) -> None:
    assert outcome(monkeypatch, *arguments, tests="pass") == 0
    assert tested.recorded(root) is None
    tested.record(root, "earlier", "tests")
    assert outcome(monkeypatch, *arguments, tests="pass") == 0
    kept = tested.recorded(root)
    assert kept is not None
    assert kept.commit == "earlier"


def test_a_failure_is_not_kept(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    assert outcome(monkeypatch, lint="pass", tests="exit(1)") == 1
    assert tested.recorded(root) is None


def test_a_tree_that_is_no_commit_is_not_kept(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    (root / "new").touch()
    assert outcome(monkeypatch, tests="pass") == 0
    assert tested.recorded(root) is None


def test_a_tree_that_changes_during_the_run_is_not_kept(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    assert outcome(monkeypatch, tests="open('new', 'w').close()") == 0
    assert tested.recorded(root) is None


def test_a_checkout_without_version_control_is_tested_all_the_same(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    (root / ".git").rename(root / "elsewhere")
    assert outcome(monkeypatch, tests="pass") == 0
    assert tested.recorded(root) is None
