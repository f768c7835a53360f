"""Telling, following a log, and stopping when asked to."""

import os
import signal
from pathlib import Path

import pytest

from ops.signals import Signals, Stopped
from ops.terminal import LogFollower, heading, write


def test_a_reader_that_is_gone_stops_nothing() -> None:
    read, written = os.pipe()
    os.close(read)
    with os.fdopen(written, "w") as stream:
        write("nobody", stream)
        write("reads this", stream)


def test_headings_are_plain_where_output_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert heading("Summary") == "Summary"


def test_a_log_is_followed_by_whole_lines_from_where_it_was(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    follower = LogFollower(log)
    with log.open("a") as file:
        file.write("one\ntw")
        file.flush()
        assert follower.news() == "one\n"
        file.write("o\n")
    assert follower.news() == "two\n"
    assert follower.news() == ""


def test_the_first_signal_stops_and_later_ones_change_nothing() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        Signals()
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        leaving = Signals()
        leaving.ignore()
        signal.raise_signal(signal.SIGHUP)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
