"""What it means for an owner that Firestore fails, and what to do about it."""

import os

from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError

from metacortex.adapters.firestore_client import ERRORS
from metacortex.errors import MetaCortexError
from ops.place import EMULATOR, database_of

PASSING = (
    exceptions.ServiceUnavailable,
    exceptions.TooManyRequests,
    exceptions.Aborted,
    exceptions.InternalServerError,
    exceptions.GatewayTimeout,
)
"""What another attempt may mend: a network that is away for a moment, or a store that asks to slow down."""
_SILENT = (exceptions.ServiceUnavailable, exceptions.GatewayTimeout, TimeoutError)
_OF_STORE = frozenset(error.message for error in ERRORS.values())


def told(error: MetaCortexError, project: str) -> str:
    """One sentence for whoever ran the command; the service's own about the store is for its clients."""
    cause = error.__cause__
    return meaning(cause, project) if error.message in _OF_STORE and isinstance(cause, Exception) else error.message


def meaning(error: Exception, project: str) -> str:
    """One sentence for whoever ran the command."""
    if isinstance(error, exceptions.RetryError) and error.cause:
        error = error.cause
    where = database_of(project)
    if isinstance(error, exceptions.TooManyRequests):
        return (
            f"Firestore takes no more requests for {where} now; if the project's free quota of the day is used up, go on"
            " tomorrow, or link a billing account."
        )
    if isinstance(error, _SILENT) and (emulator := os.environ.get(EMULATOR)):
        return f"No emulator answers at {emulator}; start it, or correct {EMULATOR}."
    if _is_about_credentials(error):
        return (
            "There are no Google credentials on this machine, or they have expired; run"
            " `gcloud auth application-default login` as somebody who may use the database of this project."
        )
    if isinstance(error, _SILENT):
        return f"Firestore does not answer for {where}; check the network, and run the same command again."
    if isinstance(error, PASSING):
        return f"Firestore failed at a request for {where}; run the same command again. It said: {_said(error)}"
    return _refusal(error, where)


def _is_about_credentials(error: Exception) -> bool:
    # gRPC asks for a token itself, and calls a failure of that «unavailable».
    return isinstance(error, GoogleAuthError | exceptions.Unauthorized) or "metadata from plugin failed" in str(error)


def _refusal(error: Exception, where: str) -> str:
    if isinstance(error, exceptions.Forbidden):
        return (
            f"Firestore refuses {where}; check the project's id, and that your application default credentials have"
            " the role roles/datastore.user there (to read, roles/datastore.viewer is enough)."
        )
    if isinstance(error, exceptions.NotFound):
        return f"{where} has no Firestore database; check the project's id, or make the database first."
    if isinstance(error, exceptions.FailedPrecondition) and "too old" in str(error):
        return (
            f"Reading {where} took longer than the hour for which Firestore keeps a moment; do it over a faster"
            " connection, from a machine near the database."
        )
    return f"Firestore refused a request for {where}: {_said(error)}"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}, {error}"
