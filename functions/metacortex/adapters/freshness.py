"""How long another host's answer may be kept, by what it says of that (RFC 9111), in a cache that many share."""

from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.request import parse_http_list

_FORBIDDING = frozenset({"no-store", "no-cache", "private"})
_DATE = "%a, %d %b %Y %H:%M:%S GMT"


def seconds_fresh(headers: Mapping[str, str]) -> float | None:
    """For how many seconds more an answer is fresh; None where it does not say. What cannot be understood is not fresh."""
    directives = _directives(headers.get("cache-control", ""))
    if not _FORBIDDING.isdisjoint(directives):
        return 0.0
    said = next((directives[name] for name in ("s-maxage", "max-age") if name in directives), None)
    lifetime = _whole(said) if said is not None else _until_expiry(headers)
    return None if lifetime is None else lifetime - _whole(headers.get("age", "0").partition(",")[0].strip())


def _directives(header: str) -> Mapping[str, str]:
    """The directives of Cache-Control by their names; of one that is there twice the first."""
    parts = (part.partition("=") for part in reversed(parse_http_list(header)))
    return {name.strip().lower(): value.strip().strip('"') for name, _, value in parts}


def _whole(text: str) -> float:
    # More digits than these are as good as for ever.
    return float(text[:10]) if text.isascii() and text.isdecimal() else 0.0


def _until_expiry(headers: Mapping[str, str]) -> float | None:
    """From the host's own clock, so that ours need not agree with it."""
    if "expires" not in headers or "date" not in headers:
        return None
    try:
        return (_time(headers["expires"]) - _time(headers["date"])).total_seconds()
    except ValueError:
        return 0.0


def _time(text: str) -> datetime:
    return datetime.strptime(text, _DATE).replace(tzinfo=UTC)
