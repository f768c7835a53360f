"""Models that Google has shut down or is about to, as its deprecation pages announce: a name, the day, and what to use."""

from dataclasses import dataclass
from datetime import date

from metacortex.settings import Settings


@dataclass(frozen=True)
class Retirement:
    """The end of a model. A name may go on being answered after it, by another model."""

    day: date
    instead: str

    def told(self, model: str, today: date) -> str:
        """A sentence to put before what to do."""
        return f"{model} {'was shut down' if self.day <= today else 'will be shut down'} on {self.day.isoformat()}"


_EMBEDDING = Settings.gemini_embedding_model
_GENERATION = Settings.gemini_multimodal_model
RETIREMENTS = {
    "embedding-001": Retirement(date(2025, 10, 30), _EMBEDDING),
    "text-embedding-004": Retirement(date(2026, 1, 14), _EMBEDDING),
    "gemini-3-pro-preview": Retirement(date(2026, 3, 9), _GENERATION),
    "gemini-2.0-flash": Retirement(date(2026, 6, 1), _GENERATION),
    "gemini-2.0-flash-001": Retirement(date(2026, 6, 1), _GENERATION),
    "gemini-2.0-flash-lite": Retirement(date(2026, 6, 1), _GENERATION),
    "gemini-2.0-flash-lite-001": Retirement(date(2026, 6, 1), _GENERATION),
    "gemini-2.5-flash": Retirement(date(2026, 12, 1), _GENERATION),
    "gemini-2.5-pro": Retirement(date(2026, 12, 1), _GENERATION),
}
