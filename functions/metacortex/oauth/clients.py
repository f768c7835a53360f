"""Who asks: a client, as it registered itself or as the document behind its id describes it."""

import re
import unicodedata
from dataclasses import dataclass

from metacortex.oauth.urls import is_same_redirect, shown_host

NAME_CHARACTERS = 80
REDIRECT_URIS = 20
# Marks in great number are slow to put in order.
_READ_CHARACTERS = 500
_MARKS_ON_ONE = 3
# What Unicode calls letters, marks or signs though they show nothing: fillers, blanks, selectors of variants.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufffc"
    "\U00013441\U00013442\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)


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
    """A client's name for people: one line of characters that can be seen, in plain forms, not too long, and never empty."""
    text = unicodedata.normalize("NFKC", name[:_READ_CHARACTERS]) if isinstance(name, str) else ""
    line = " ".join("".join(map(_shown, _BLANK.sub("", text))).split())
    return _without_piles(line)[:NAME_CHARACTERS].strip() or fallback


def _shown(character: str) -> str:
    """Controls part words, as spaces do; what formats, joins or turns around the text, or means nothing, is left out."""
    category = unicodedata.category(character)
    if category in {"Cc", "Zl", "Zp", "Zs"}:
        return " "
    return "" if category.startswith("C") else character


def _without_piles(line: str) -> str:
    """A line whose marks stay in it: few on each letter, and none where there is no letter."""
    kept: list[str] = []
    free = 0
    for character in line:
        is_mark = unicodedata.category(character) in {"Mn", "Me"}
        if not is_mark or free > 0:
            kept.append(character)
        free = free - 1 if is_mark else 0 if character == " " else _MARKS_ON_ONE
    return "".join(kept)
