"""Who asks: a client, as it registered itself or as the document behind its id describes it."""

from dataclasses import dataclass, field

from metacortex.oauth.urls import is_same_redirect, shown_host

NAME_CHARACTERS = 80
REDIRECT_URIS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client that may ask the owner for a grant. Nothing that it says of itself is proved but where its redirects go."""

    id: str
    name: str
    redirect_uris: tuple[str, ...]
    registered_at: int | None = None
    """Epoch milliseconds; None for a client that is described by a document."""
    used: bool = False
    """Whether the owner ever approved it."""
    metadata: dict[str, object] = field(default_factory=dict[str, object])
    """What it registered, to be told again."""

    @property
    def is_described(self) -> bool:
        """Whether its id is the address of a document that describes it."""
        return self.registered_at is None

    @property
    def host(self) -> str:
        """What its id proves of where it comes from; empty for one that registered itself."""
        return shown_host(self.id) if self.is_described else ""

    def redirect(self, asked: str | None) -> str | None:
        """Where answers go: the address asked for if it is one of its own, or its only one where none was asked for."""
        if asked is None:
            return self.redirect_uris[0] if len(self.redirect_uris) == 1 else None
        return asked if any(is_same_redirect(known, asked) for known in self.redirect_uris) else None


def shown_name(name: object, fallback: str) -> str:
    """A client's name for people: one line of printable characters, not too long, and never empty."""
    text = " ".join("".join(c if c.isprintable() else " " for c in name).split()) if isinstance(name, str) else ""
    return text[:NAME_CHARACTERS].strip() or fallback
