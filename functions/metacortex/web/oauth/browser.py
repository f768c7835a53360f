"""Where the owner's browser comes: to sign in, and to allow or refuse."""

import hashlib
import hmac
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from metacortex.oauth import ports
from metacortex.oauth.errors import Gone, repeated
from metacortex.oauth.grants import new_secret
from metacortex.oauth.owner import COOKIE, LONGEST_PASSPHRASE, SESSION_MS, Locked, Owner
from metacortex.oauth.service import REQUEST_MS, Answer, Asked, Authorization, Refusal
from metacortex.profiles import Profile
from metacortex.web.oauth import pages
from metacortex.web.oauth.bodies import fields_of, form_of, form_text, sorted_fields


class Browser:
    def __init__(self, authorization: Authorization, owner: Owner, google: ports.ProviderSignIn | None) -> None:
        self._authorization = authorization
        self._owner = owner
        self._google = google
        # On loopback without TLS browsers would not keep a cookie that is to be secure.
        self._is_https = authorization.base.startswith("https:")

    async def authorize(self, request: Request) -> Response:
        """RFC 6749 §4.1.1, in the URL or as a form."""
        fields, twice = sorted_fields(form_text(request) if request.method == "POST" else request.url.query)
        if twice & {"client_id", "redirect_uri"}:
            raise repeated(twice)
        asked = Asked(
            client_id=fields.get("client_id", ""),
            redirect_uri=fields.get("redirect_uri"),
            response_type=fields.get("response_type"),
            code_challenge=fields.get("code_challenge"),
            code_challenge_method=fields.get("code_challenge_method"),
            state=fields.get("state"),
            scope=fields.get("scope"),
            resource=fields.get("resource"),
            fault=repeated(twice) if twice else None,
        )
        try:
            waiting = await self._authorization.begin(asked)
        except Refusal as refusal:
            # Anybody may register, and send anybody here: nobody is sent on who has not seen where to.
            return pages.refused(refusal.answer.parameters["error_description"], _address(refusal.answer))
        return await self._ask(request, waiting)

    async def sign_in(self, request: Request) -> Response:
        """The passphrase."""
        self._require_own_page(request)
        form = form_of(request)
        waiting = await self._authorization.waiting(form.get("request", ""))
        if not self._owner.has_passphrase:
            raise Gone("There is no passphrase here; sign in with Google.")
        try:
            right = await self._owner.knows(form.get("passphrase", "")[:LONGEST_PASSPHRASE])
        except Locked as locked:
            return self._sign_in_page(
                waiting, f"Too many wrong passphrases. Wait {locked.seconds} seconds, then try again.", 429
            )
        if not right:
            await self._authorization.note_refused_sign_in("passphrase")
            return self._sign_in_page(waiting, "This is not the passphrase.", 401)
        return await self._signed_in(waiting.id, "passphrase")

    async def to_google(self, request: Request) -> Response:
        google = self._require_google()
        waiting = await self._authorization.waiting(request.query_params.get("request", ""))
        try:
            url, expected = await google.begin(waiting.id)
        except ports.SignInRefused as refused:
            return self._sign_in_page(waiting, refused.says, 502)
        # Whoever comes back must be the browser that went. Its cookie says so; a session begins with another one.
        known = request.cookies.get(COOKIE)
        browser = known or new_secret()
        await self._authorization.remember(waiting, {**expected, "browser": _digest(browser)})
        answer = RedirectResponse(url, 303, NO_STORE)
        if not known:
            self._set_cookie(answer, browser, REQUEST_MS)
        return answer

    async def from_google(self, request: Request) -> Response:
        google = self._require_google()
        fields = fields_of(request.url.query)
        waiting = await self._authorization.waiting(google.request_of(fields.get("state", "")))
        if await self._session(request) is not None:
            # Signed in meanwhile, by another of the owner's windows, which has changed the cookie.
            return _to_consent(waiting.id)
        if not _is_same_browser(request, waiting):
            # Whoever it is: it costs nothing here.
            return self._sign_in_page(waiting, "This sign-in belongs to another attempt; start it again here.", 401)
        # Once: what an attempt must come back with is good for one way back.
        await self._authorization.remember(waiting, {})
        try:
            await google.finish(fields, waiting.provider)
        except ports.SignInRefused as refused:
            await self._authorization.note_refused_sign_in("google")
            return self._sign_in_page(waiting, refused.says, 401)
        return await self._signed_in(waiting.id, "google")

    async def consent(self, request: Request) -> Response:
        """The page that asks, and the answer to it."""
        if request.method != "POST":
            return await self._ask(request, await self._authorization.waiting(request.query_params.get("request", "")))
        self._require_own_page(request)
        form = form_of(request)
        waiting = await self._authorization.waiting(form.get("request", ""))
        if await self._session(request) is None:
            return self._sign_in_page(waiting, "You are not signed in any more.", 401)
        if form.get("answer") == "approve":
            return _to(await self._authorization.approve(waiting))
        return _to(await self._authorization.deny(waiting))

    async def _ask(self, request: Request, waiting: ports.Request) -> Response:
        if await self._session(request) is None:
            return self._sign_in_page(waiting)
        return pages.consent(waiting, self._profile(waiting))

    def _profile(self, waiting: ports.Request) -> Profile:
        profile = self._authorization.profile_of(waiting.resource)
        assert profile is not None
        return profile

    def _sign_in_page(self, waiting: ports.Request, error: str = "", status: int = 200) -> Response:
        return pages.sign_in(
            waiting,
            has_passphrase=self._owner.has_passphrase,
            has_google=self._google is not None,
            error=error,
            status=status,
        )

    async def _session(self, request: Request) -> ports.Session | None:
        return await self._owner.session(request.cookies.get(COOKIE))

    async def _signed_in(self, request_id: str, way: str) -> Response:
        value = await self._owner.sign_in(way)
        await self._authorization.note_sign_in(way)
        answer = _to_consent(request_id)
        self._set_cookie(answer, value, SESSION_MS)
        return answer

    def _set_cookie(self, answer: Response, value: str, milliseconds: int) -> None:
        seconds = milliseconds // 1000
        answer.set_cookie(COOKIE, value, max_age=seconds, httponly=True, secure=self._is_https, samesite="lax")

    def _require_google(self) -> ports.ProviderSignIn:
        if self._google is None:
            raise Gone("Signing in with Google is not set up here; use the passphrase.")
        return self._google

    def _require_own_page(self, request: Request) -> None:
        """A form counts only if a page of ours sent it: any other page could send one in the owner's name."""
        if request.headers.get("origin") != self._authorization.base:
            raise Gone("This form was not sent from this page. Go back to the application and connect again.")


NO_STORE = {"Cache-Control": "no-store"}


def _to_consent(request_id: str) -> Response:
    return RedirectResponse(f"/oauth/consent?{urlencode({'request': request_id})}", 303, NO_STORE)


def _is_same_browser(request: Request, waiting: ports.Request) -> bool:
    """Whether a browser is the one which went to the provider."""
    return hmac.compare_digest(_digest(request.cookies.get(COOKIE, "")), waiting.provider.get("browser", ""))


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()


def _to(answer: Answer) -> Response:
    """Sends the browser to the client with an answer."""
    # 303: the answer to a form must not send the form on.
    return RedirectResponse(_address(answer), 303, NO_STORE)


def _address(answer: Answer) -> str:
    """Where an answer goes, beside whatever the client's address says already."""
    mark = "&" if "?" in answer.redirect_uri else "?"
    return f"{answer.redirect_uri}{mark}{urlencode(answer.parameters)}"
