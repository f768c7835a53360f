"""MetaCortex on this machine: the Firestore emulator and the function, until Ctrl-C. Run by ./scripts/dev."""

import argparse
import asyncio
import math
import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack

from metacortex.errors import ConfigurationError
from metacortex.settings import ModelProvider, SignInWay, load
from ops.checkout import DATA
from ops.emulator import Emulator, ImportFailed, running_emulator
from ops.endpoints import PORT, PREFIX, PROJECT, Endpoint, client_lines, endpoint_for_agents, endpoints_of
from ops.exports import Exports
from ops.first_search import wait_for_search
from ops.function import Function, running_function
from ops.keeper import Keeper
from ops.local_settings import generate_missing, read_settings
from ops.place import EMULATOR
from ops.processes import OpsError, ending, port_is_free
from ops.signals import Signals, Stopped
from ops.terminal import LogFollower, heading, say, show, write

OWNER_HASH = "OWNER_PASSPHRASE_HASH"
SAVE_EVERY = 45.0
# Of the machine or of another service; here they would make the function something that production is not.
NOT_FOR_THE_FUNCTION = (
    "CLOUD_RUN_TIMEOUT_SECONDS",
    "DEBUG",
    "FUNCTION_SIGNATURE_TYPE",
    "FUNCTION_SOURCE",
    "FUNCTION_TARGET",
    "FUNCTION_USE_ASGI",
    "GUNICORN_CMD_ARGS",
    "K_REVISION",
    "K_SERVICE",
    "PYTHONPATH",
    "WORKERS",
)
ROUTES = {
    ModelProvider.LOCAL: "local: static embeddings on this machine, no account",
    ModelProvider.GEMINI: "gemini: the Gemini API, by GEMINI_API_KEY",
}


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0 after a stop that was asked for or a passed check, 1 where something failed."""
    options = _parser().parse_args(arguments)
    signals = Signals()
    try:
        if options.check:
            _check(signals)
        elif options.ephemeral:
            _serve(options, signals, None)
        else:
            exports = Exports(DATA)
            with exports.locked(
                "Another ./scripts/dev is running in this checkout, and its data can have one user only."
                " Stop that one first, or add --ephemeral --port N to this one."
            ):
                _serve(options, signals, exports)
    except Stopped:
        return 0
    except (OpsError, OSError) as error:
        for sentence in _told(error):
            say(sentence)
        return 1
    return 0


def _told(error: BaseException | None) -> Iterator[str]:
    """What went wrong, and before it what had gone wrong by then."""
    if isinstance(error, OpsError | OSError):
        if not error.__suppress_context__:
            yield from _told(error.__context__)
        yield str(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/dev",
        description="Runs MetaCortex on this machine: the Firestore emulator and the function, with data that lasts.",
        epilog=(
            "Settings come from functions/.env, functions/.secret.local and the environment, the last winning; missing"
            " tokens are generated into functions/.secret.local. Ctrl-C saves and stops everything; the exit status is"
            " then 0, and 1 if anything failed."
        ),
    )
    parser.add_argument("--port", type=_port, default=PORT, help="where the function listens (default: %(default)s)")
    parser.add_argument("--ephemeral", action="store_true", help="start empty and keep nothing")
    parser.add_argument(
        "--save-every",
        type=_seconds,
        default=SAVE_EVERY,
        metavar="SECONDS",
        help="how much a crash may lose (default: %(default).0f)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="start on free ports without data, save, search and fetch through an MCP client, stop; exit 0 or 1",
    )
    return parser


def _serve(options: argparse.Namespace, signals: Signals, exports: Exports | None) -> None:
    began = time.monotonic()
    _require_free(options.port)
    settings = generate_missing(read_settings(os.environ))
    passphrase = _new_passphrase() if _lacks_passphrase(settings) else None
    environment = _function_environment(settings) | _sign_in(settings, options.port, passphrase)
    route = _route(environment)
    # Unwound from its end: the function stops before its data is saved, and the emulator after.
    with ExitStack() as stack:
        emulator = _emulator_with_data(stack, exports)
        keeper = Keeper(exports, emulator, PROJECT, options.save_every) if exports else None
        if keeper:
            stack.callback(keeper.finish)
        function = stack.enter_context(_function(environment, emulator, port=options.port))
        stack.callback(signals.ignore)
        say("Waiting for a first search, which loads the model ...")
        refusal = wait_for_search(function, settings["MCP_ADMIN_TOKEN"].strip())
        if keeper:
            keeper.begin(function)
        facts = _facts(options, route, emulator, environment["PUBLIC_BASE_URL"], passphrase)
        show(_report(endpoints_of(settings), function, facts, refusal))
        show([f"ready in {time.monotonic() - began:.1f} s at {function.url} (Ctrl-C stops)"])
        _watch(function, emulator, keeper)


def _watch(function: Function, emulator: Emulator, keeper: Keeper | None) -> None:
    lines = LogFollower(function.process.log)
    while True:
        write(lines.news(), sys.stderr)
        for process in (emulator.process, function.process):
            if (exit_code := process.exit_code()) is not None:
                raise OpsError(f"{process.name} {ending(exit_code)}. Its last words:\n{process.tail(15)}")
        if keeper:
            keeper.save_if_due()
        time.sleep(0.1)


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError("a port is a whole number from 1 to 65535")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    # Whatever is compared with nan is false.
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError("seconds are a number above 0, such as 45 or 0.5")
    return seconds


def _check(signals: Signals) -> None:
    # The MCP client takes half a second to import, and only this needs it.
    from ops.self_check import TOOLS, check  # noqa: PLC0415

    settings = generate_missing(read_settings(os.environ), secrets_file=None)
    environment = _function_environment(settings)
    _route(environment)
    endpoint = _endpoint_to_check(endpoints_of(settings), TOOLS)
    with ExitStack() as stack:
        say("Starting the Firestore emulator ...")
        emulator = stack.enter_context(running_emulator())
        function = stack.enter_context(_function(environment, emulator, port=None))
        stack.callback(signals.ignore)
        if refusal := wait_for_search(function, settings["MCP_ADMIN_TOKEN"].strip()):
            raise OpsError(refusal)
        urls = [endpoint.url(function.url), f"{function.url}{endpoint.path}"]
        try:
            asyncio.run(check(urls, endpoint.token or "", lambda line: show([line])))
        except OpsError as error:
            raise OpsError(f"{error}\nThe function's last words:\n{function.process.tail(15)}") from None
    show(["check passed"])


def _endpoint_to_check(endpoints: list[Endpoint], tools: Sequence[str]) -> Endpoint:
    admin, *scoped = endpoints
    return next((endpoint for endpoint in scoped if endpoint.token and set(tools) <= set(endpoint.tools)), admin)


def _require_free(port: int) -> None:
    # The last run's function may be a moment from its end.
    deadline = time.monotonic() + 1
    while not port_is_free(port):
        if time.monotonic() > deadline:
            raise OpsError(
                f"Port {port} is taken by another program. Stop that one, or choose another port with --port."
            )
        time.sleep(0.05)


def _function_environment(settings: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in settings.items() if name not in NOT_FOR_THE_FUNCTION}
    return kept | {"GCLOUD_PROJECT": PROJECT, "FUNCTIONS_EMULATOR": "true"}


def _lacks_passphrase(settings: Mapping[str, str]) -> bool:
    with_google_alone = settings.get("OWNER_SIGN_IN", "").strip() == SignInWay.GOOGLE
    return not settings.get(OWNER_HASH, "").strip() and not with_google_alone


def _new_passphrase() -> str:
    """Four groups of letters that can be typed: for this run alone, and kept nowhere."""
    return "-".join("".join(secrets.choice("abcdefghjkmnpqrstuvwxyz") for _ in range(5)) for _ in range(4))


def _sign_in(settings: Mapping[str, str], port: int, passphrase: str | None) -> dict[str, str]:
    """What turns signing in on, where the settings do not say otherwise."""
    from argon2 import PasswordHasher  # noqa: PLC0415 - --check has no use for it

    base = settings.get("PUBLIC_BASE_URL", "").strip() or f"http://127.0.0.1:{port}"
    hashed = PasswordHasher().hash(passphrase) if passphrase else settings.get(OWNER_HASH, "")
    return {"PUBLIC_BASE_URL": base, OWNER_HASH: hashed}


def _route(environment: Mapping[str, str]) -> str:
    """The model route in words; raises OpsError with every fault of the settings."""
    try:
        provider = load(environment).provider
    except ConfigurationError as error:
        places = "functions/.env, functions/.secret.local or the environment"
        faults = "\n".join(f"  {fault}" for fault in error.faults)
        raise OpsError(f"The settings have faults; mend them in {places}:\n{faults}") from None
    if provider is ModelProvider.VERTEX:
        raise OpsError(
            f"MODEL_PROVIDER=vertex needs a Google project, and this machine plays one that Google does not have,"
            f" {PROJECT}. Start with MODEL_PROVIDER=local, or with MODEL_PROVIDER=gemini and a GEMINI_API_KEY."
        )
    return ROUTES[provider]


def _function(
    environment: Mapping[str, str], emulator: Emulator, *, port: int | None
) -> AbstractContextManager[Function]:
    say("Starting the function ...")
    return running_function({**environment, EMULATOR: emulator.host}, port=port)


def _emulator_with_data(stack: ExitStack, exports: Exports | None) -> Emulator:
    """Start from the newest export that can be imported; newer ones that cannot are set aside, and that is told."""
    say("Starting the Firestore emulator ...")
    if exports is None:
        return stack.enter_context(running_emulator())
    log = exports.folder / "emulator.log"
    stored = exports.stored()
    for position, export in enumerate(stored):
        try:
            emulator = stack.enter_context(running_emulator(import_from=export, log=log))
        except ImportFailed as error:
            say(str(error))
            continue
        for unreadable in stored[:position]:
            say(f"Going back to {export.name}, and keeping the other as {exports.set_aside(unreadable)}.")
        return emulator
    if stored:
        raise OpsError(
            f"None of the exports in {exports.folder} can be imported. Move that folder away to start empty."
        )
    return stack.enter_context(running_emulator(log=log))


def _report(
    endpoints: list[Endpoint], function: Function, facts: Mapping[str, str], refusal: str | None
) -> Iterator[str]:
    for endpoint in endpoints:
        yield ""
        yield heading(f"{endpoint.name} endpoint")
        yield f"  {endpoint.url(function.url)}"
        yield f"  token  {endpoint.token or 'not stored here, only its hash'}"
        if endpoint.tools:
            yield f"  tools  {', '.join(endpoint.tools)}"
    yield ""
    yield f"Every path works with and without {PREFIX} before it."
    for name, fact in facts.items():
        yield f"  {name:<9}{fact}"
    for client, lines in client_lines(endpoint_for_agents(endpoints), function.url).items():
        yield ""
        yield heading(client)
        yield lines
    yield ""
    if refusal:
        yield heading("Searching is refused for now")
        yield refusal
        yield ""


def _how_to_sign_in(base: str, passphrase: str | None) -> str:
    how = f"the owner's passphrase of this run is {passphrase}" if passphrase else "sign in as you have set up"
    return f"give a client {base}/clients/ID/mcp alone; {how}"


def _facts(
    options: argparse.Namespace, route: str, emulator: Emulator, base: str, passphrase: str | None
) -> dict[str, str]:
    kept = f"in {DATA}, saved within {options.save_every:g} seconds of a call and at the end"
    return {
        "sign-in": _how_to_sign_in(base, passphrase),
        "model": route,
        "data": "nowhere: this run is ephemeral" if options.ephemeral else kept,
        "store": f"Firestore emulator at {emulator.host}, its log is {emulator.process.log}",
        "grants": f"who was let in: {EMULATOR}={emulator.host} ./scripts/metacortex grant list",
    }


if __name__ == "__main__":
    sys.exit(main())
