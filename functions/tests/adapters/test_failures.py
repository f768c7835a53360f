"""A store that fails: each way a call can end has a meaning here, in words that say what to do."""

import grpc
import pytest
from google.api_core import exceptions
from google.auth.exceptions import DefaultCredentialsError

from metacortex.adapters.firestore_client import answering
from metacortex.errors import MetaCortexError, RateLimited, TimedOut, Unavailable

# Both say that a request of ours was wrong: they stay what they are, and the caller is told «internal».
OUR_OWN_FAULTS = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE}
FAILURES = sorted(set(grpc.StatusCode) - {grpc.StatusCode.OK}, key=lambda code: code.name)


@pytest.mark.parametrize("code", FAILURES, ids=lambda code: code.name)
async def test_every_way_a_call_can_end_has_a_meaning(code: grpc.StatusCode) -> None:
    expected = exceptions.GoogleAPICallError if code in OUR_OWN_FAULTS else MetaCortexError
    with pytest.raises(expected):
        async with answering():
            raise exceptions.from_grpc_status(code, "details")


@pytest.mark.parametrize(
    ("raised", "meaning"),
    [
        (exceptions.ServiceUnavailable("details"), Unavailable),
        (exceptions.Aborted("details"), Unavailable),
        (exceptions.DeadlineExceeded("details"), TimedOut),
        (exceptions.RetryError("details", None), Unavailable),
        (TimeoutError(), TimedOut),
        (exceptions.ResourceExhausted("details"), RateLimited),
        (exceptions.PermissionDenied("details"), Unavailable),
        (DefaultCredentialsError("details"), Unavailable),
    ],
)
async def test_what_a_failure_means(raised: Exception, meaning: type[MetaCortexError]) -> None:
    with pytest.raises(meaning) as error:
        async with answering():
            raise raised
    assert "details" not in error.value.message
