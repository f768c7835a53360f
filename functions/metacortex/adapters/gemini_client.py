"""The connection to Gemini, by API key or on Vertex AI by identity: its deadlines, and its errors in the domain's terms.

google.genai takes longer to import than anything else here, so the first call that needs a model imports it.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from google.auth.exceptions import GoogleAuthError, TransportError

from metacortex.errors import MetaCortexError, ModelFailed, RateLimited, TimedOut, Unavailable
from metacortex.startup import once

if TYPE_CHECKING:
    from google.genai import Client
    from google.genai.errors import APIError

ATTEMPTS = 2
# A call that waits for a connection is delayed by others, so there are enough for every call that an instance serves at once,
# each of a long memory. The library alone would end at 100, and would close one that was idle for 5 s: agents think longer.
CONNECTIONS = 320
KEPT = 64
KEPT_SECONDS = 60.0
WORTH_REPEATING = [408, 429, 500, 502, 503, 504]

_TOO_SLOW = "The model service did not answer in time; the same call is safe to repeat."
_BUSY = "The model service asks for fewer requests at the moment; repeat the same call in a minute."
_DOWN = "The model service cannot be reached at the moment; the same call is safe to repeat in a few seconds."
_NO_MODEL = (
    "The model service has no such model for this installation; its owner must check the GEMINI_*_MODEL settings."
)
_NONSENSE = (
    "The model service answered what cannot be read; try again, and have the owner look into the log if it stays so."
)
_REJECTED = "The model service does not accept this request; send less, or have the owner look into the log."

# What the client library raises over an answer that is no JSON, or JSON of another shape; the text of some quotes it.
UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, RecursionError)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Route:
    """How models are reached: with `api_key`, or without one on Vertex AI in `project` and `location`, by identity."""

    api_key: str = field(default="", repr=False)
    project: str | None = None
    location: str | None = None

    @property
    def credential(self) -> str:
        """What an owner must check where the service refuses."""
        return "GEMINI_API_KEY" if self.api_key else "that the function's identity may use Vertex AI in this project"

    async def client(self) -> "Client":
        """Made by the first call. It belongs to the event loop of that call."""
        try:
            return await self._made()
        except GoogleAuthError as error:
            logger.warning("The model service cannot be used: %s", type(error).__name__)
            raise ModelFailed(_refused(self)) from None

    @cached_property
    def _made(self) -> Callable[[], Awaitable["Client"]]:
        return once(self._make)

    def _make(self) -> "Client":
        from google.genai import Client
        from google.genai.types import HttpOptions, HttpRetryOptions
        from httpx2 import Limits

        repeating = HttpRetryOptions(
            attempts=ATTEMPTS, initial_delay=0.3, max_delay=1.0, http_status_codes=WORTH_REPEATING
        )
        limits = Limits(max_connections=CONNECTIONS, max_keepalive_connections=KEPT, keepalive_expiry=KEPT_SECONDS)
        options = HttpOptions(retry_options=repeating, async_client_args={"limits": limits})
        # Each route is spelt out, so that what else stands in the environment cannot choose another.
        if self.api_key:
            return Client(vertexai=False, api_key=self.api_key, http_options=options)
        return Client(vertexai=True, project=self.project, location=self.location, http_options=options)

    async def close(self) -> None:
        """Ends its connections; a process that ends anyway need not."""
        if "_made" in self.__dict__:
            await (await self._made()).aio.aclose()


@asynccontextmanager
async def answering(route: Route, seconds: float) -> AsyncGenerator["Client"]:
    """Around each call of a model: gives it the client and a deadline, and raises its failures in the domain's terms.

    A failure's own text may hold a prompt or a key, so it goes nowhere: the log gets its code and its kind.
    """
    client = await route.client()
    from google.genai.errors import APIError
    from httpx2 import HTTPError, TimeoutException

    try:
        async with asyncio.timeout(seconds):
            yield client
    except APIError as error:
        logger.warning("The model service answered %s %s", error.code, error.status)
        raise _meaning(error, route) from None
    except (TimeoutError, TimeoutException):
        raise TimedOut(_TOO_SLOW) from None
    except (HTTPError, TransportError) as error:
        logger.warning("The model service cannot be reached: %s", type(error).__name__)
        raise Unavailable(_DOWN) from None
    except GoogleAuthError as error:
        logger.warning("The model service cannot be used: %s", type(error).__name__)
        raise ModelFailed(_refused(route)) from None
    except UNREADABLE as error:
        logger.warning("The model service answered what cannot be read: %s", type(error).__name__)
        raise ModelFailed(_NONSENSE) from None


def _meaning(error: "APIError", route: Route) -> MetaCortexError:
    # A key that is not one is answered 400, with this reason among the details.
    if error.code in {401, 403} or "API_KEY_INVALID" in str(error.details):
        return ModelFailed(_refused(route))
    meanings: dict[int, MetaCortexError] = {
        404: ModelFailed(_NO_MODEL),
        408: TimedOut(_TOO_SLOW),
        429: RateLimited(_BUSY),
        504: TimedOut(_TOO_SLOW),
    }
    if error.code in meanings:
        return meanings[error.code]
    return Unavailable(_DOWN) if error.code >= 500 else ModelFailed(_REJECTED)


def _refused(route: Route) -> str:
    return f"The model service refuses this installation; its owner must check {route.credential}."
