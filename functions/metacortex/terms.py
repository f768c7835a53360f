"""The words a memory can be found by: normalised, the same way for what is stored and for what is asked.

Everything is lower case and without accents; English words lose their endings. Numbers and identifiers are kept whole and in
their parts, as in `ERR_1042`, `v2.3.1` or `getUserName`. Scripts that write no spaces become pairs of neighbouring characters.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

from metacortex.memory import Metadata
from metacortex.rules import day

MOST_TERMS = 300
COUNTED = 8
LONGEST = 64

# Han, kana, Hangul, Thai, Lao, Myanmar and Khmer.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
# Vowel signs of Indic scripts and points of Arabic and Hebrew belong to their words, though they are no letters by themselves.
_LETTER = rf"(?:[^\W{_UNSPACED}]|[\u0591-\u05c7\u064b-\u065f\u0900-\u0dff])"
_PIECES = re.compile(rf"(?P<unspaced>[{_UNSPACED}]+)|(?P<word>{_LETTER}+(?:[-._/:@#+'’]{_LETTER}+)*(?:\+\+|#)?)")
_PARTS = re.compile(r"[^\W\d_]*[^\WA-Z\d_]+|[^\W\d_]+|\d+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_POSSESSIVE = re.compile(r"['’]s?$|['’]")
_ACCENTS = re.compile(r"[\u0300-\u036f]")

# Words that nearly every English text holds. In other languages counting finds out.
_EMPTY_WORDS = """
a about after am an and any are as at be been before being but by can could d did do does doing don for from had has have
having he her here him his how i if in into is it its just ll m me might must my no nor not of on or our over re s shall she
should so t than that the their them then there these they this those to us ve was we were what when where which who whom
whose why will with would you your
"""
_EMPTY = frozenset(_EMPTY_WORDS.split())


def memory_terms(text: str, metadata: Metadata) -> dict[str, int]:
    """The terms of a memory: of its text for retrieval, its topic, its day and its references."""
    date = metadata.created_at if metadata.valid_from is None else metadata.valid_from
    return terms("\n".join((text, metadata.topic, "" if date is None else day(date), *metadata.artifact_refs)))


def terms(text: str) -> dict[str, int]:
    """The terms of a text and how often each stands in it; of more than 300, identifiers and numbers first, then the first."""
    counts = Counter(_terms(text))
    if len(counts) <= MOST_TERMS:
        return dict(counts)
    kept = sorted(counts, key=lambda term: not _is_identifier(term))[:MOST_TERMS]
    return {term: counts[term] for term in kept}


def query_terms(query: str) -> tuple[str, ...]:
    """The at most 8 terms of a query that are likely to be rare: identifiers and numbers first, then the longest."""
    distinct = dict.fromkeys(_terms(query))
    return tuple(sorted(distinct, key=lambda term: (not _is_identifier(term), -len(term)))[:COUNTED])


def _is_identifier(term: str) -> bool:
    return any(character.isdigit() or character in "-._/:@#+" for character in term)


def _terms(text: str) -> Iterator[str]:
    plain = unicodedata.normalize("NFKC", _ACCENTS.sub("", unicodedata.normalize("NFKD", text)))
    for piece in _PIECES.finditer(plain):
        if unspaced := piece["unspaced"]:
            yield from (unspaced[place : place + 2] for place in range(max(1, len(unspaced) - 1)))
        else:
            yield from _of_word(_POSSESSIVE.sub("", piece["word"]).strip("_"))


def _of_word(word: str) -> Iterator[str]:
    """A word as it is, and its parts where it has several."""
    lowered = word.casefold()
    parts = [part.casefold() for part in _PARTS.findall(_CAMEL.sub(" ", word))]
    if len(parts) == 1 and parts[0] == lowered:
        if lowered not in _EMPTY:
            yield _stem(lowered)[:LONGEST]
        return
    if 0 < len(lowered) <= LONGEST:
        yield lowered
    for part in parts:
        # The single letters of a name or a unit say nothing without the rest.
        if len(part) > 1 and part not in _EMPTY:
            yield _stem(part)[:LONGEST]


_ENDINGS = ("ingly", "edly", "ings", "ing", "ied", "ies", "ers", "er", "ed", "es", "ly", "s")
_DOUBLED = re.compile(r"([bdfgmnprt])\1$")


def _stem(word: str) -> str:
    """An English word without its ending; light, so that different words stay apart."""
    if not (word.isascii() and word.isalpha()) or word.endswith("ss"):
        return word
    for ending in _ENDINGS:
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= 3:
            if ending in {"ied", "ies"}:
                return f"{stem}y"
            word = _DOUBLED.sub(r"\1", stem)
            break
    return word.removesuffix("e") if len(word) > 3 else word
