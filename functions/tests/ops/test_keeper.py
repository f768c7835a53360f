"""When the emulator's data is exported while it runs, and at the end."""

import json
from collections.abc import Generator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from ops.emulator import Emulator
from ops.exports import Exports
from ops.function import Function
from ops.keeper import Keeper
from ops.processes import OpsError, start


@dataclass
class Kept:
    """A keeper that saves whenever it is asked, and what it works on."""

    keeper: Keeper
    exports: Exports
    emulator: Emulator
    function: Function
    status: list[int]

    def newest(self) -> str | None:
        return next((export.name for export in self.exports.stored()), None)

    def called(self) -> None:
        with self.function.process.log.open("a") as log:
            log.write("save_context\n")


@pytest.fixture
def kept(tmp_path: Path) -> Generator[Kept]:
    """The emulator here is a stand-in: it writes a folder and answers `status`."""
    status = [200]
    log = tmp_path / "emulator.log"

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            Path(request["export_directory"], request["export_name"]).mkdir()
            self.send_response(status[0])
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    emulator = Emulator(f"127.0.0.1:{server.server_address[1]}", start("The emulator", ["sleep", "1000"], log=log))
    function = Function(1, start("The function", ["sleep", "1000"], log=tmp_path / "function.log"))
    exports = Exports(tmp_path / "data")
    keeper = Keeper(exports, emulator, "demo-project", every=0)
    made = Kept(keeper, exports, emulator, function, status)
    keeper.begin(function)
    yield made
    emulator.process.stop()
    function.process.stop()
    server.shutdown()
    thread.join()
    server.server_close()


def test_it_saves_after_calls_and_only_then(kept: Kept) -> None:
    seen: list[str | None] = []
    for call in (True, False, True, False, False):
        if call:
            kept.called()
        kept.keeper.save_if_due()
        seen.append(kept.newest())
    assert seen == ["export-000001", "export-000001", "export-000002", "export-000002", "export-000002"]


def test_it_always_saves_at_the_end(kept: Kept) -> None:
    kept.keeper.save_if_due()
    kept.keeper.finish()
    assert kept.newest() == "export-000002"


def test_a_failure_is_told_keeps_what_was_saved_and_is_tried_again(
    kept: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    kept.keeper.save_if_due()
    kept.called()
    kept.status[0] = 500
    kept.keeper.save_if_due()
    assert kept.newest() == "export-000001"
    assert "The data could not be saved (The Firestore emulator answered 500" in capsys.readouterr().err
    kept.status[0] = 200
    kept.keeper.save_if_due()
    assert kept.newest() == "export-000002"


def test_a_failure_at_the_end_says_what_is_kept(kept: Kept) -> None:
    kept.status[0] = 500
    with pytest.raises(OpsError, match=r"could not be saved .*; saved is that of \d\d:\d\d:\d\d"):
        kept.keeper.finish()


def test_an_emulator_that_crashed_took_what_was_not_saved(kept: Kept) -> None:
    kept.emulator.process.stop()
    with pytest.raises(OpsError, match=r"What was stored after \d\d:\d\d:\d\d is lost\."):
        kept.keeper.finish()


def test_nothing_is_saved_before_there_is_something_to_keep(kept: Kept) -> None:
    Keeper(kept.exports, kept.emulator, "demo-project", every=0).finish()
    assert kept.newest() is None
