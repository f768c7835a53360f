"""The pages that the owner sees: made on the server, without a script, and for no frame."""

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from metacortex.memory import BranchState
from metacortex.oauth.ports import Request
from metacortex.oauth.urls import DEFAULT_PORTS, is_loopback, shown_host
from metacortex.profiles import Profile

FOLDER = Path(__file__).parent / "templates"
STYLE = (FOLDER / "style.css").read_text("utf-8")
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
_PAGES = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined)
_PAGES.globals.update(style=STYLE)  # pyright: ignore[reportCallIssue, reportArgumentType]

ABILITIES: Mapping[str, str] = {
    "save_context": "save new memories",
    "search_context": "search your memories",
    "fetch_context": "read a memory whole",
    "list_context": "list your memories",
    "deprecate_context": "retire memories; nothing is deleted",
    "consolidate_context": "merge several memories into one",
}
ONWARD = "https: http://127.0.0.1:* http://localhost:*"
STATES: Mapping[BranchState, str] = {
    BranchState.ACTIVE: "active",
    BranchState.MERGED: "merged",
    BranchState.DEPRECATED: "retired (deprecated)",
    BranchState.WIP: "drafts (wip)",
}


def sign_in(
    request: Request, *, has_passphrase: bool, has_google: bool, error: str = "", status: int = 200
) -> Response:
    text = _PAGES.get_template("sign_in.html").render(
        **_application(request), has_passphrase=has_passphrase, has_google=has_google, error=error
    )
    return _page(text, status)


def consent(request: Request, profile: Profile) -> Response:
    text = _PAGES.get_template("consent.html").render(
        **_application(request),
        profile=profile,
        abilities=[(tool, ABILITIES[tool]) for tool in profile.tools],
        readable=[STATES[state] for state in profile.readable_states],
        writable=[STATES[state] for state in profile.writable_states] if "save_context" in profile.tools else [],
    )
    return _page(text, 200, _beyond(request.redirect_uri))


def message(heading: str, says: str, status: int) -> Response:
    return _page(_PAGES.get_template("message.html").render(heading=heading, says=says), status)


def refused(says: str, onward: str) -> Response:
    """What is wrong with an application's request, and the way back to it."""
    text = _PAGES.get_template("refused.html").render(says=says, onward=onward, host=shown_host(onward))
    return _page(text, 400)


def _application(request: Request) -> dict[str, object]:
    """What every page tells of who asks. Nothing that a client says of itself stands in a sentence of ours."""
    scheme = _scheme(request.redirect_uri)
    return {
        "request": request,
        "redirect_host": shown_host(request.redirect_uri),
        "on_loopback": is_loopback(request.redirect_uri),
        "is_app": scheme not in DEFAULT_PORTS,
    }


def _beyond(redirect_uri: str) -> str:
    """Where the answer to a form may lead, for a policy.

    Browsers hold every redirect that follows a form against its form-action: that to the client, and those of the client's
    own that come after it, such as from its web site to its program on this computer.
    """
    scheme = _scheme(redirect_uri)
    # A policy has no way to write an IPv6 address, only its scheme.
    is_covered = scheme == "https" or (scheme == "http" and "[" not in shown_host(redirect_uri))
    return ONWARD if is_covered else f"{ONWARD} {scheme}:"


def _scheme(url: str) -> str:
    return url.partition(":")[0].lower()


def _page(text: str, status: int, goes_to: str = "") -> Response:
    policy = (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self' {goes_to}".rstrip()
        + "; base-uri 'none'; frame-ancestors 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "X-Frame-Options": "DENY",
        # Not no-referrer, with which browsers send forms from `Origin: null`.
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return HTMLResponse(text, status, headers)
