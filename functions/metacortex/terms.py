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

# Han, kana, Hangul, Thai, Lao, Myanmar and Khmer, without their punctuation.
_UNSPACED = (
    "\u0e01-\u0e2e\u0e30-\u0e4e\u0e50-\u0e59\u0e80-\u0eff\u1000-\u1049\u1050-\u109f\u1780-\u17d3\u17dc-\u17ff"
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
# Vowel signs of Indic scripts belong to their words, though they are no letters by themselves.
_SIGNS = "".join(sign for sign in map(chr, range(0x0900, 0x0E00)) if unicodedata.category(sign) in {"Mn", "Mc"})
_LETTER = rf"(?:[^\W_{_UNSPACED}]|[{_SIGNS}])"
_PIECES = re.compile(rf"(?P<unspaced>[{_UNSPACED}]+)|(?P<word>{_LETTER}+(?:(?:_+|[-./:@#+']){_LETTER}+)*(?:\+\+|#)?)")
_SEGMENTS = re.compile(r"[/:@]")
_PARTS = re.compile(rf"\d+|(?:[^\W\d_]|[{_SIGNS}])+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_VERSION = re.compile(r"v\d+\.\d")
# The endings of `isn't`, `she'll`, `owner's` and `IDs`.
_ADDED = re.compile(r"(?:(?<=[desto])n't|'(?:s|t|ll|re|ve|d|m)|(?-i:(?<=[A-Z][A-Z])s))$", re.IGNORECASE)
# What people leave out as often as not: accents, the points of Hebrew and Arabic, and characters that show nothing.
_LEFT_OUT = re.compile(
    "[\u00ad\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u065f\u0670"
    "\u200c-\u200f\u2060\ufe00-\ufe0f\ufeff]"
)
# To Unicode a stroke is no accent, and there are several apostrophes and hyphens.
_ALIKE = str.maketrans("ØøŁłĐđĦħı\u02bc\u2018\u2019\u2010", "OoLlDdHhi'''-")

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
    date = "" if metadata.date is None else day(metadata.date)
    return terms("\n".join((text, metadata.topic, date, *metadata.artifact_refs)))


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
    plain = unicodedata.normalize("NFKC", _LEFT_OUT.sub("", unicodedata.normalize("NFKD", text))).translate(_ALIKE)
    for piece in _PIECES.finditer(plain):
        if unspaced := piece["unspaced"]:
            yield from (unspaced[place : place + 2] for place in range(max(1, len(unspaced) - 1)))
        else:
            yield from _of_word(_ADDED.sub("", piece["word"]))


def _of_word(word: str) -> Iterator[str]:
    """A word as it is, and its parts where it has several."""
    whole = word.replace("'", "").casefold()
    if whole in _EMPTY:
        return
    yield _stem(whole[:LONGEST])
    if _VERSION.match(whole):
        yield whole[1:LONGEST]
    for part in _parts(word):
        # The single letters of a name or a unit say nothing without the rest.
        if len(part) > 1 and part.casefold() != whole:
            yield from _of_word(part)


def _parts(word: str) -> list[str]:
    """What a word is put together from: of a path its segments, which have parts of their own."""
    segments = _SEGMENTS.split(word)
    return segments if len(segments) > 1 else _PARTS.findall(_CAMEL.sub(" ", word))


# What comes before the ending of a verb has a vowel: a string is no verb.
_VERB = re.compile(r"(?P<stem>(?=[a-z]*[aeiouy][a-z]*(?:ed|ing)$)[a-z]{3,})(?:ed|ing)")
_DOUBLED = re.compile(r"(?<=..)([bdgmnprt])\1$")


def _stem(word: str) -> str:
    """An English word without its endings, the same for all its forms; light, so that different words stay apart."""
    if not (word.isascii() and word.isalpha()):
        return word
    while (shorter := _without_ending(word)) != word:
        word = shorter
    return word


def _without_ending(word: str) -> str:
    if len(word) <= 3 or word.endswith("ss"):
        return word
    if word.endswith("s"):
        return word[:-1]
    if verb := _VERB.fullmatch(word):
        return _DOUBLED.sub(r"\1", verb["stem"])
    if word.endswith(("ie", "i")):
        return f"{word.removesuffix('e')[:-1]}y"
    if word.endswith("e") or (len(word) > 5 and word.endswith("ll")):
        return word[:-1]
    return word
