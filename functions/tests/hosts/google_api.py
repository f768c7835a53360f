"""A server on this machine that stands in for Google's administration: it grants whatever a deployment asks for."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

Body = dict[str, Any]
NUMBER = "1234567890"
UPLOADS = "/uploads/source.zip"
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class GoogleApi:
    """A project in which nothing is deployed yet, with the secrets that it holds."""

    secrets: frozenset[str]
    asked: list[Asked] = field(default_factory=list[Asked])
    function: Body = field(default_factory=dict[str, Any])
    """The function, once it is created."""

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self._answer, methods=METHODS)])

    def changes(self, path: str) -> list[Asked]:
        """The requests that create or change what is at paths of a pattern."""
        return [each for each in self.asked if each.method != "GET" and re.fullmatch(path, each.path)]

    async def _answer(self, request: Request) -> Response:
        asked = Asked(request.method, request.url.path, await request.body())
        self.asked.append(asked)
        answer = self._changed(asked, str(request.base_url)) if request.method == "POST" else self._found(asked)
        return JSONResponse({"error": {"code": 404}}, 404) if answer is None else JSONResponse(answer)

    def _changed(self, asked: Asked, base: str) -> Body:
        name, _, verb = asked.path.rpartition("/")[2].partition(":")
        match name, verb:
            case "token", _:
                return {"access_token": "an-access-token", "expires_in": 3600}
            case _, "testIamPermissions":
                return asked.json()
            case _, "setIamPolicy":
                return asked.json()["policy"]
            case "functions", "generateUploadUrl":
                source = {"bucket": "sources", "object": "source.zip"}
                return {"uploadUrl": f"{base.rstrip('/')}{UPLOADS}", "storageSource": source}
            case "functions", _:
                self.function = asked.json()
                return self._created()
            case _:
                return {}

    def _found(self, asked: Asked) -> Body | None:
        """What there is at a path; None if there is nothing."""
        if secret := re.search(r"/secrets/(\w+)(/versions/)?", asked.path):
            name = f"projects/{NUMBER}{secret[0]}{'1' if secret[2] else ''}"
            return {"name": name, "state": "ENABLED"} if secret[1] in self.secrets else None
        kind, name = asked.path.split("/")[-2:]
        if kind == "operations":
            return self._created()
        if name == "adminSdkConfig":
            return {"projectId": kind}
        account = f"{NUMBER}-compute@developer.gserviceaccount.com"
        found: Body = {
            "projects": {"projectId": name, "projectNumber": NUMBER, "defaultServiceAccount": account},
            "services": {"state": "ENABLED"},
            # Without a policy, a deployment that cannot ask for one fails at its end.
            "repositories": {"cleanupPolicies": {"firebase-functions-cleanup": {}}},
        }
        return found.get(kind, {})

    def _created(self) -> Body:
        """The finished operation that created the function."""
        place, _, name = self.function["name"].partition("/functions/")
        served = {"service": f"{place}/services/{name.lower()}", "uri": f"https://{name.lower()}.example.org"}
        made = {**self.function, "state": "ACTIVE", "serviceConfig": {**self.function["serviceConfig"], **served}}
        return {"name": f"{place}/operations/create", "done": True, "response": made}
