"""The pages on which the owner signs in and answers: served as production serves them, and seen in Chromium."""

import re
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.async_api import Browser, ConsoleMessage, Error, Page
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from builders import environment
from hosts.owner import answer, sign_in
from metacortex.oauth.grants import challenge_of
from openid_provider import CLIENT_ID, CLIENT_SECRET, EMAIL, OpenIdProvider, providing
from ops.function import running_function
from ops.hosts import HostTools
from ops.processes import free_port
from signing import HASH, PASSPHRASE, VERIFIER
from web.wire import serving

pytestmark = [pytest.mark.hosts, pytest.mark.slow]

OWN_SCHEME = "com.example.notes:/signed-in"
PHONE, DESKTOP, SMALLEST = 360, 1280, 320
WIDER_THAN_THE_SCREEN = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
FOCUSED = "getComputedStyle(document.activeElement).outlineStyle + ' ' + document.activeElement.innerText"
DEFINED = "Object.fromEntries([...document.querySelectorAll('dt')].map(dt => [dt.innerText, dt.nextElementSibling.innerText]))"


@dataclass
class Application:
    """A program on this machine that wants to use the memory, and hears the answer on loopback."""

    base: str
    port: int = 0
    answers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[Route("/callback", self._hear), Route("/moves", self._move), Route("/frames", self._frame)]
        )

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def asks(self, page: Page, name: str = "Notes", redirect: str = "/callback") -> str:
        """The address that it sends the owner to, once it has registered itself."""
        uri = f"{self.origin}{redirect}" if redirect.startswith("/") else redirect
        metadata = {"client_name": name, "redirect_uris": [uri]}
        response = await page.request.post(f"{self.base}/oauth/register", data=metadata)
        fields = {
            "client_id": (await response.json())["client_id"],
            "redirect_uri": uri,
            "response_type": "code",
            "code_challenge": challenge_of(VERIFIER),
            "code_challenge_method": "S256",
            "state": "a state",
            "resource": f"{self.base}/clients/agent/mcp",
        }
        return f"{self.base}/oauth/authorize?{urlencode(fields)}"

    async def _hear(self, request: Request) -> Response:
        self.answers.append(dict(request.query_params))
        return HTMLResponse("<title>Connected</title>")

    async def _move(self, request: Request) -> Response:
        """Answers are taken at one host and told at another, as applications with a web site do."""
        return RedirectResponse(f"http://localhost:{self.port}/callback?{request.url.query}", 302)

    async def _frame(self, request: Request) -> Response:
        return HTMLResponse(f'<iframe src="{self.base}/oauth/authorize?{request.url.query}"></iframe>')


@pytest.fixture(scope="module")
def provider() -> Generator[OpenIdProvider]:
    with providing() as provider:
        yield provider


@pytest.fixture(scope="module")
def application(emulator_host: str, provider: OpenIdProvider) -> Generator[Application]:
    port = free_port()
    settings = environment(
        FIRESTORE_EMULATOR_HOST=emulator_host,
        GCLOUD_PROJECT=f"demo-{uuid.uuid4().hex[:12]}",
        PUBLIC_BASE_URL=f"http://127.0.0.1:{port}",
        OWNER_PASSPHRASE_HASH=HASH,
        OWNER_EMAIL=EMAIL,
        GOOGLE_SIGN_IN_CLIENT_ID=CLIENT_ID,
        GOOGLE_SIGN_IN_CLIENT_SECRET=CLIENT_SECRET,
        GOOGLE_SIGN_IN_ISSUER=provider.issuer,
    )
    with running_function(settings, port=port) as running:
        application = Application(running.url)
        with serving(application.app) as wire:
            application.port = wire.port
            yield application


@pytest.fixture
def faults() -> list[str]:
    """What the browser found wrong: what a policy forbids, what is missing, what a script stumbles over."""
    return []


@pytest.fixture
async def page(chromium: Browser, application: Application, faults: list[str]) -> AsyncGenerator[Page]:
    """A page of a browser in which the owner is not signed in yet. It may find no fault."""
    application.answers.clear()
    context = await chromium.new_context(viewport={"width": DESKTOP, "height": 800})
    page = await context.new_page()
    page.on("console", lambda message: faults.append(message.text) if is_fault(message) else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    yield page
    await context.close()
    assert faults == []


def is_fault(message: ConsoleMessage) -> bool:
    """Not so an answer with a status of its own, such as 401: what that page says is for a test to look at."""
    return message.type in {"error", "warning"} and not message.text.startswith("Failed to load resource: the server")


async def tab_to(page: Page, name: str) -> None:
    """Goes to the next part that takes the keyboard, which is this one, and to be seen."""
    await page.keyboard.press("Tab")
    assert await page.evaluate(FOCUSED) == f"solid {name}"


# --- From question to answer ---


async def test_the_owner_signs_in_and_approves_by_the_keyboard_alone(page: Page, application: Application) -> None:
    await page.goto(await application.asks(page))
    for passphrase, outcome in (("a wrong passphrase", "Error: Sign in"), (PASSPHRASE, "Allow access?")):
        assert await page.evaluate(FOCUSED) == "solid "
        await page.keyboard.type(passphrase)
        await tab_to(page, "Sign in")
        async with page.expect_navigation():
            await page.keyboard.press("Enter")
        assert await page.title() == f"{outcome} – MetaCortex"
    await tab_to(page, "Approve")
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"{application.origin}/callback?*")
    [returned] = application.answers
    assert returned.pop("code")
    assert returned == {"state": "a state", "iss": application.base}


async def test_a_wrong_passphrase_is_told_with_the_field_it_is_for(page: Page, application: Application) -> None:
    await sign_in(page, await application.asks(page), "a wrong passphrase")
    field = page.get_by_role("textbox", description="This is not the passphrase.")
    assert await field.get_attribute("id") == "passphrase"
    assert await field.input_value() == ""


async def test_a_denial_is_told_to_the_application(page: Page, application: Application) -> None:
    await sign_in(page, await application.asks(page))
    await tab_to(page, "Approve")
    await tab_to(page, "Deny")
    await page.keyboard.press("Space")
    await page.wait_for_url(f"{application.origin}/callback?*")
    [returned] = application.answers
    assert (returned["error"], returned["state"], returned["iss"]) == ("access_denied", "a state", application.base)


async def test_an_answer_leaves_for_a_scheme_of_the_applications_own(page: Page, application: Application) -> None:
    await sign_in(page, await application.asks(page, redirect=OWN_SCHEME))
    # No program here opens such an address; the browser fails to only once it was allowed to try.
    async with page.expect_event("requestfailed") as failed:
        await answer(page, "Approve")
    url = (await failed.value).url
    assert url.startswith(f"{OWN_SCHEME}?code=")


async def test_an_application_may_send_the_browser_on_to_another_host(page: Page, application: Application) -> None:
    await sign_in(page, await application.asks(page, redirect="/moves"))
    await answer(page, "Approve")
    await page.wait_for_url(f"http://localhost:{application.port}/callback?*")
    assert application.answers[0]["code"]


async def test_who_goes_back_to_an_answered_request_is_told_what_to_do(page: Page, application: Application) -> None:
    await sign_in(page, await application.asks(page))
    await answer(page, "Approve")
    await page.wait_for_url(f"{application.origin}/callback?*")
    await page.go_back()
    assert "connect again" in await page.get_by_role("main").inner_text()
    assert await page.get_by_role("button").count() == 0


async def test_the_owner_signs_in_with_google(page: Page, application: Application) -> None:
    await page.goto(await application.asks(page))
    await page.get_by_role("link", name="Sign in with Google").click()
    await answer(page, "Approve")
    await page.wait_for_url(f"{application.origin}/callback?*")
    assert application.answers[0]["code"]


# --- What guards the pages ---


async def test_the_session_is_kept_from_scripts_and_other_sites(page: Page, application: Application) -> None:
    await sign_in(page, await application.asks(page))
    [cookie] = await page.context.cookies()
    # Secure as well where it is served by TLS.
    assert (cookie.get("name"), cookie.get("httpOnly"), cookie.get("sameSite")) == ("__session", True, "Lax")
    await page.goto(await application.asks(page, "Another"))
    assert await page.get_by_role("button", name="Approve").is_visible()


async def test_no_page_is_shown_in_a_frame(page: Page, application: Application, faults: list[str]) -> None:
    await page.goto(
        (await application.asks(page)).replace(f"{application.base}/oauth/authorize", f"{application.origin}/frames")
    )
    assert page.frames[1].url == "chrome-error://chromewebdata/"
    assert "frame-ancestors 'none'" in faults.pop()


async def test_no_script_runs_on_a_page(page: Page, application: Application, faults: list[str]) -> None:
    await sign_in(page, await application.asks(page))
    assert await page.evaluate("document.scripts.length") == 0
    with pytest.raises(Error, match="Content Security Policy"):
        await page.add_script_tag(content="document.title = 'It ran'")
    assert await page.title() == "Allow access? – MetaCortex"
    assert "script" in faults.pop()


# --- What they say ---


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("<img src=x onerror=\"document.title='It ran'\"><b>Notes</b>", None),
        ("</bdi></dd><dt>Described at</dt><dd>claude.ai", None),
        ("Notes\nDescribed at\nclaude.ai", "Notes Described at claude.ai"),
        ("\u202eia.edualc\u2066 \u200b", "ia.edualc"),
        ("מחברת (claude.ai)", None),
        ("N" * 300, "N" * 80),
    ],
)
async def test_a_name_is_shown_as_text_and_as_nothing_else(
    page: Page, application: Application, name: str, shown: str | None
) -> None:
    await page.set_viewport_size({"width": SMALLEST, "height": 700})
    url = await application.asks(page, name)
    await page.goto(url)
    for button in ("Sign in", "Approve"):
        assert await page.get_by_role("button", name=button).is_visible()
        defined = await page.evaluate(DEFINED)
        assert defined["Application"].split("\n") == [
            shown or name,
            "",
            "It chose this name itself. Nobody has checked it.",
        ]
        assert "Described at" not in defined
        assert not await page.evaluate(WIDER_THAN_THE_SCREEN)
        assert await page.evaluate("getComputedStyle(document.querySelector('bdi')).unicodeBidi") == "isolate"
        if button == "Sign in":
            await sign_in(page, url)


HERE = ["/callback", "http://[::1]:7777/callback", OWN_SCHEME]


@pytest.mark.parametrize(
    ("redirect", "said"),
    [
        ("/callback", r"127\.0\.0\.1:\d+\s+This is your own computer\."),
        ("http://[::1]:7777/callback", r"\[::1\]:7777\s+This is your own computer\."),
        (OWN_SCHEME, r"whatever opens com\.example\.notes: links on this device"),
        ("https://notes.example.com:8443/callback", r"notes\.example\.com:8443"),
    ],
)
async def test_the_owner_is_told_where_the_answer_goes_and_to_beware_of_programs_here(
    page: Page, application: Application, redirect: str, said: str
) -> None:
    await sign_in(page, await application.asks(page, redirect=redirect))
    assert re.fullmatch(said, (await page.evaluate(DEFINED))["Answer goes to"])
    assert await page.get_by_text("Approve only if you started this yourself").is_visible() == (redirect in HERE)


async def test_the_owner_is_told_what_is_opened(page: Page, application: Application) -> None:
    await sign_in(page, await application.asks(page))
    defined = await page.evaluate(DEFINED)
    assert defined["Client profile"] == "agent"
    assert [line.split()[-1] for line in defined["It may"].splitlines()] == [
        "save_context",
        "search_context",
        "fetch_context",
    ]
    assert (defined["Memories it reads"], defined["Memories it saves"]) == ("active", "active, drafts (wip)")


# --- Who can use them ---

LONGEST_NAME = "W" * 80


async def at_sign_in(page: Page, application: Application) -> None:
    await page.goto(await application.asks(page, LONGEST_NAME))


async def at_refusal(page: Page, application: Application) -> None:
    await sign_in(page, await application.asks(page, LONGEST_NAME), "a wrong passphrase")


async def at_consent(page: Page, application: Application) -> None:
    await sign_in(page, await application.asks(page, LONGEST_NAME))


async def at_message(page: Page, application: Application) -> None:
    await page.goto(f"{application.base}/oauth/consent?request=unheard-of")


PAGES: dict[str, Callable[[Page, Application], Awaitable[None]]] = {
    "Sign in – MetaCortex": at_sign_in,
    "Error: Sign in – MetaCortex": at_refusal,
    "Allow access? – MetaCortex": at_consent,
    "This cannot go on – MetaCortex": at_message,
}


@pytest.mark.parametrize("title", PAGES)
async def test_a_page_is_for_everyone_on_any_screen(
    page: Page, application: Application, tools: HostTools, title: str
) -> None:
    await PAGES[title](page, application)
    assert await page.title() == title
    await page.evaluate(tools.axe.read_text("utf-8"))
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        for width in (PHONE, DESKTOP):
            await page.set_viewport_size({"width": width, "height": 740})
            assert await violations(page) == []
        await page.set_viewport_size({"width": SMALLEST, "height": 640})
        assert not await page.evaluate(WIDER_THAN_THE_SCREEN)


async def violations(page: Page) -> list[str]:
    """What axe finds wrong with a page's accessibility, and where."""
    found: dict[str, Any] = await page.evaluate("axe.run()")
    return [f"{each['id']}: {node['html']}" for each in found["violations"] for node in each["nodes"]]
