"""The connection of an evaluation to its database."""

from google.auth.exceptions import GoogleAuthError
from google.cloud.firestore_v1.async_client import AsyncClient

from metacortex.adapters.firestore_client import create_client
from ops.processes import OpsError


def connect(project: str) -> AsyncClient:
    """A client of the project's database; raises OpsError where nobody is signed in."""
    try:
        return create_client(project)
    except GoogleAuthError as error:
        raise OpsError(
            "There are no Google credentials on this machine; run `gcloud auth application-default login` as somebody who"
            " may write to the database of this project."
        ) from error
