"""What can go wrong, in the domain's own terms.

MetaCortexError
├── InvalidArgument          bad or conflicting arguments
├── Forbidden                a state, origin or tool this client may not use
├── NotFound                 no such memory for this client
├── Conflict                 not possible in the state that the memories are in now
├── TooLarge                 over a documented size
├── NothingToDo              fewer memories than the work needs
├── RateLimited              a service we depend on asks us to slow down
├── ModelFailed              the model answered with an error or nonsense
├── Unavailable              the store or the model cannot be reached; trying again may help
│   └── EmbeddingSpaceMismatch   the collection's vectors come from another model
├── TimedOut                 no answer in time
└── ConfigurationError       the installation's settings are wrong; carries every fault

Each message is one sentence for whoever can act on it. None carries a credential or a memory's text, or tells whether an id
exists that the client may not read.
"""

from collections.abc import Sequence


class MetaCortexError(Exception):
    """Base of every error this project raises on purpose."""

    code = "internal"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidArgument(MetaCortexError):
    code = "invalid_argument"


class Forbidden(MetaCortexError):
    code = "forbidden"


class NotFound(MetaCortexError):
    code = "not_found"


class Conflict(MetaCortexError):
    code = "conflict"


class TooLarge(MetaCortexError):
    code = "too_large"


class NothingToDo(MetaCortexError):
    code = "nothing_to_do"


class RateLimited(MetaCortexError):
    code = "rate_limited"


class ModelFailed(MetaCortexError):
    code = "model_failed"


class Unavailable(MetaCortexError):
    code = "unavailable"


class EmbeddingSpaceMismatch(Unavailable):
    code = "embedding_space_mismatch"


class TimedOut(MetaCortexError):
    code = "timed_out"


class ConfigurationError(MetaCortexError):
    """The settings are wrong. `faults` holds one sentence per fault, each beginning with the place it was found in."""

    code = "configuration"

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("The configuration has faults: " + " · ".join(faults))
        self.faults = tuple(faults)
