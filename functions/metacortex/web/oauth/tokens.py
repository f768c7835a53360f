"""Where clients, not people, come: registration, tokens and revocation."""

import json
from collections.abc import Mapping

from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from metacortex.oauth.errors import OAuthError, invalid_client, invalid_request, unnamed_client
from metacortex.oauth.grants import ACCESS_MS, Grant, Pair
from metacortex.oauth.service import Authorization
from metacortex.web.oauth.bodies import body_of, form_of

NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}
GRANT_TYPES = ["authorization_code", "refresh_token"]
# What a registration may say of the client that is of use to nobody else.
_OURS = frozenset({"client_id", "client_secret", "client_secret_expires_at", "client_id_issued_at"})


class Tokens:
    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization

    async def register(self, request: Request) -> Response:
        """RFC 7591: what was registered is told again, but for what this server decides."""
        try:
            metadata = from_json(body_of(request), allow_inf_nan=False)
            # 1e999 is JSON, but is read as a number that is none.
            json.dumps(metadata, allow_nan=False)
        except ValueError:
            metadata = None
        if not isinstance(metadata, dict):
            raise OAuthError("invalid_client_metadata", "Send the client's metadata as one JSON object.")
        client = await self._authorization.register(metadata)
        told = {
            **{key: metadata[key] for key in metadata if key not in _OURS},
            "client_id": client.id,
            "client_id_issued_at": (client.registered_at or 0) // 1000,
            "grant_types": GRANT_TYPES,
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
        return JSONResponse(told, 201, NO_STORE)

    async def token(self, request: Request) -> Response:
        form = form_of(request)
        client_id = await self._client_of(form)
        match form.get("grant_type"):
            case "authorization_code":
                return _pair(
                    *await self._authorization.redeem(
                        _required(form, "code"),
                        client_id=client_id,
                        redirect_uri=form.get("redirect_uri"),
                        verifier=_required(form, "code_verifier"),
                        resource=form.get("resource"),
                    )
                )
            case "refresh_token":
                return _pair(
                    *await self._authorization.refresh(
                        _required(form, "refresh_token"),
                        client_id=client_id,
                        scope=form.get("scope"),
                        resource=form.get("resource"),
                    )
                )
            case None:
                raise invalid_request("grant_type is required.")
            case _:
                raise OAuthError("unsupported_grant_type", f"grant_type must be one of {', '.join(GRANT_TYPES)}.")

    async def revoke(self, request: Request) -> Response:
        form = form_of(request)
        client_id = await self._client_of(form)
        await self._authorization.revoke(_required(form, "token"), client_id)
        return Response(status_code=200, headers=NO_STORE)

    async def _client_of(self, form: Mapping[str, str]) -> str:
        client_id = form.get("client_id")
        if not client_id:
            raise unnamed_client()
        if not await self._authorization.is_known(client_id):
            raise invalid_client()
        return client_id


def _required(form: Mapping[str, str], name: str) -> str:
    if not form.get(name):
        raise invalid_request(f"{name} is required.")
    return form[name]


def _pair(grant: Grant, pair: Pair) -> Response:
    return JSONResponse(
        {
            "access_token": pair.access,
            "token_type": "Bearer",
            "expires_in": ACCESS_MS // 1000,
            "refresh_token": pair.refresh,
            "scope": " ".join(grant.scopes),
        },
        headers=NO_STORE,
    )
