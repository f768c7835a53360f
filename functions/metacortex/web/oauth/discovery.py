"""The documents by which a client finds out how to sign in: RFC 9728 for an endpoint, RFC 8414 for the server."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from metacortex.oauth.service import SCOPE, SCOPES, Authorization
from metacortex.web.oauth.tokens import NO_STORE
from metacortex.web.responses import NOT_FOUND

CACHED = {"Cache-Control": "public, max-age=300"}


class Discovery:
    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization

    async def of_endpoint(self, request: Request) -> Response:
        """What an endpoint's tokens must be for, and who gives them."""
        profile_id = request.path_params["client_id"]
        if not self._authorization.has_endpoint(profile_id):
            return JSONResponse(NOT_FOUND, 404, NO_STORE)
        return self._resource(self._authorization.resource_of(profile_id))

    async def of_origin(self, _: Request) -> Response:
        """The same for a client that looks at the root alone; it then names the endpoint itself when it asks for a token."""
        return self._resource(self._authorization.base)

    def _resource(self, resource: str) -> Response:
        return JSONResponse(
            {
                "resource": resource,
                "authorization_servers": [self._authorization.base],
                "scopes_supported": [SCOPE],
                "bearer_methods_supported": ["header"],
                "resource_name": "MetaCortex",
            },
            headers=CACHED,
        )

    async def of_server(self, _: Request) -> Response:
        base = self._authorization.base
        return JSONResponse(
            {
                "issuer": base,
                "authorization_endpoint": f"{base}/oauth/authorize",
                "token_endpoint": f"{base}/oauth/token",
                "registration_endpoint": f"{base}/oauth/register",
                "revocation_endpoint": f"{base}/oauth/revoke",
                "scopes_supported": list(SCOPES),
                "response_types_supported": ["code"],
                "response_modes_supported": ["query"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
                "revocation_endpoint_auth_methods_supported": ["none"],
                "client_id_metadata_document_supported": True,
                "authorization_response_iss_parameter_supported": True,
            },
            headers=CACHED,
        )
