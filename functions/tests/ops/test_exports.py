"""The emulator's data between runs."""

from pathlib import Path

import pytest

from ops.exports import Exports
from ops.processes import OpsError


def add(exports: Exports, content: str) -> Path:
    def write(folder: Path) -> None:
        folder.mkdir()
        (folder / "data").write_text(content)

    return exports.add(write)


def contents(exports: Exports) -> list[str]:
    return [(export / "data").read_text() for export in exports.stored()]


def test_the_newest_two_are_kept_newest_first(tmp_path: Path) -> None:
    exports = Exports(tmp_path)
    for content in ("one", "two", "three"):
        add(exports, content)
    assert contents(exports) == ["three", "two"]
    assert [export.name for export in exports.stored()] == ["export-000003", "export-000002"]


def test_an_export_that_breaks_off_changes_nothing_and_hinders_nothing(tmp_path: Path) -> None:
    exports = Exports(tmp_path)
    add(exports, "one")

    def break_off(folder: Path) -> None:
        folder.mkdir()
        (folder / "data").write_text("hal")
        raise OpsError("the disk is full")

    with pytest.raises(OpsError):
        exports.add(break_off)
    assert contents(exports) == ["one"]
    add(exports, "two")
    assert contents(exports) == ["two", "one"]


def test_one_that_was_set_aside_is_neither_tried_nor_dropped_nor_is_its_number_used_again(tmp_path: Path) -> None:
    exports = Exports(tmp_path)
    add(exports, "one")
    aside = exports.set_aside(add(exports, "unreadable"))
    assert contents(exports) == ["one"]
    assert add(exports, "three").name == "export-000003"
    add(exports, "four")
    assert contents(exports) == ["four", "three"]
    assert (aside / "data").read_text() == "unreadable"


def test_numbers_are_ordered_as_numbers(tmp_path: Path) -> None:
    for number in (999_999, 1_000_000):
        (tmp_path / f"export-{number:06}").mkdir()
    assert [export.name for export in Exports(tmp_path).stored()] == ["export-1000000", "export-999999"]


def test_a_copy_under_a_name_of_its_own_is_left_alone_and_hinders_nothing(tmp_path: Path) -> None:
    exports = Exports(tmp_path)
    first = add(exports, "one")
    copies = [tmp_path / f"{name}" for name in ("export-000001-before-experiment", "old-export-9", "export-000002.zip")]
    for copy in copies:
        copy.mkdir()
    add(exports, "two")
    third = add(exports, "three")
    assert [export.name for export in exports.stored()] == [third.name, "export-000002"]
    assert all(copy.exists() for copy in copies)
    assert not first.exists()


def test_a_folder_has_one_user_and_no_other_reader(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with Exports(folder).locked("in use"):
        assert folder.stat().st_mode & 0o077 == 0
        with pytest.raises(OpsError, match="in use"), Exports(folder).locked("in use"):
            pass
    with Exports(folder).locked("in use"):
        pass
