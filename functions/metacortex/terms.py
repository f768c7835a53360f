"""The words a memory can be found by: normalised, the same way for what is stored and for what is asked.

Everything is lower case and without accents; English words lose their endings. Numbers and identifiers are kept whole and in
their parts, as in `ERR_1042`, `v2.3.1` or `getUserName`. Scripts that write no spaces become pairs of neighbouring characters.
What is stored also has each character that may be a word by itself, so that `猫` finds `我的猫`.
"""

import operator
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence

from metacortex.memory import Metadata
from metacortex.rules import day

MOST_TERMS = 300
COUNTED = 8
LONGEST = 64

# Han, kana and Hangul, where a single character may be a word, without their punctuation.
_CHARACTERS = (
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
# These and Thai, Lao, Myanmar and Khmer.
_UNSPACED = (
    "\u0e01-\u0e2e\u0e30-\u0e4e\u0e50-\u0e59\u0e80-\u0eff\u1000-\u1049\u1050-\u109f\u1780-\u17d3\u17dc-\u17ff"
    f"{_CHARACTERS}"
)
_CHARACTER = re.compile(f"[{_CHARACTERS}]")
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
# A long text is taken bit by bit, so that other threads may run: nothing else does while a text is normalised. A bit ends
# before a space or an East Asian mark, where there is one.
_STRETCHES = re.compile(r".{1,5000}(?![^\s。，、！？])|.{1,5000}", re.DOTALL)
# Putting many marks in a row into their order takes Unicode's rules the square of their number; no text needs 30.
_PILED_UP = re.compile(r"(?<![^\w\s])([^\w\s]{30})[^\w\s]+")
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
    """The terms of a memory and how often it holds each: of its topic, its day and its references, and then of its text."""
    date = "" if metadata.date is None else day(metadata.date)
    return terms_about(text, (metadata.topic, date, *metadata.artifact_refs))


def terms_about(text: str, told: Sequence[str]) -> dict[str, int]:
    """The terms of a text and of what is told about it, these first, and how often each stands in both.

    A long text does not drive out the former, nor do many references drive out the text: each has half of the 300 if it needs it.
    """
    about = Counter(_terms("\n".join(told), stored=True))
    counts = Counter(_terms(text, stored=True))
    first = list(about)[: max(MOST_TERMS // 2, MOST_TERMS - len(counts))]
    known = set(first)
    rest = _chosen([term for term in counts if term not in known], MOST_TERMS - len(first))
    return {term: about[term] + counts[term] for term in (*first, *rest)}


def _chosen(found: Sequence[str], room: int) -> Sequence[str]:
    """Of more terms than there is room for, identifiers and numbers first, then the first.

    Identifiers leave half of the room to words where there are as many; single characters come after other words.
    """
    if len(found) <= room:
        return found
    identifiers = [term for term in found if is_identifier(term)]
    words = sorted((term for term in found if not is_identifier(term)), key=_is_character)
    taken = identifiers[: max(room // 2, room - len(words))]
    return [*taken, *words[: room - len(taken)]]


def query_terms(query: str) -> tuple[str, ...]:
    """The at most 8 terms of a query that are likely to be rare: identifiers and numbers first, then the longest."""
    distinct = dict.fromkeys(_terms(query, stored=False))
    return tuple(sorted(distinct, key=lambda term: (not is_identifier(term), -len(term)))[:COUNTED])


def is_identifier(term: str) -> bool:
    """Whether a term is a number, or what a thing is called by: it has a digit, or signs inside."""
    return any(character.isdigit() or character in "-._/:@#+" for character in term)


def _is_character(term: str) -> bool:
    return _CHARACTER.fullmatch(term) is not None


def _terms(text: str, *, stored: bool) -> Iterator[str]:
    """The terms of a text in their order. A stored one also has the single characters of its pairs."""
    # A text repeats its words: each is looked at once.
    known: dict[str, tuple[str, ...]] = {}
    for stretch in _STRETCHES.findall(text):
        for unspaced, word in _PIECES.findall(_plain(stretch)):
            if not unspaced:
                yield from _of_word(_ADDED.sub("", word), known)
            elif len(unspaced) == 1:
                yield unspaced
            else:
                yield from map(operator.add, unspaced, unspaced[1:])
                yield from _CHARACTER.findall(unspaced) if stored else ()


def _plain(text: str) -> str:
    # One sign may stand for a whole formula; a text of nothing else grows without saying more.
    decomposed = unicodedata.normalize("NFKD", _PILED_UP.sub(r"\1", text))[: 4 * len(text) + 200]
    return unicodedata.normalize("NFKC", _LEFT_OUT.sub("", decomposed)).translate(_ALIKE)


def _of_word(word: str, known: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """A word as it is, and its parts where it has several."""
    if word not in known:
        known[word] = tuple(_found_in(word, known))
    return known[word]


def _found_in(word: str, known: dict[str, tuple[str, ...]]) -> Iterator[str]:
    whole = word.replace("'", "").casefold()
    if whole in _EMPTY:
        return
    yield _stem(whole[:LONGEST])
    if _VERSION.match(whole):
        yield whole[1:LONGEST]
    for part in _parts(word):
        # The single letters of a name or a unit say nothing without the rest.
        if len(part) > 1 and part.casefold() != whole:
            yield from _of_word(part, known)


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
