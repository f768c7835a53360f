"""One ranking out of two: how near a memory is in meaning, and which rare words of the query it holds. Pure functions.

Both are brought to 0..1 over the candidates and added by weight. A word counts the more, the fewer memories hold it; all words
together count the less, the less of the query they are.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from metacortex import rules
from metacortex.memory import Match, MatchedBy, Metadata
from metacortex.terms import is_identifier

RARE_TERMS = 3
LEXICAL_CANDIDATES = 50
# How fast holding a word more often stops to matter.
_SATURATION = 1.2
# A word that no memory holds weighs more than one that a single memory holds: as if a tenth of one did.
_UNHELD = 0.1
# How much less the words of a memory say where they are but a share of the query's: 1 would be in proportion, 0 no less.
_DOUBT = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A memory that one of the queries found. `score` is its cosine similarity to the query as it is, -1..1.

    `held` tells how often it holds each of the query's counted words; None where the query that found it could not see that.
    """

    id: str
    summary: str
    score: float
    metadata: Metadata
    held: Mapping[str, int] | None
    by_vector: bool
    is_shortened: bool = False
    """Whether the metadata lacks its long lists, as that of a part may."""


def rare_terms(counts: Mapping[str, int]) -> dict[str, int]:
    """The rarest words that any memory holds, and how many of their memories to fetch: at most 50 in all."""
    room = LEXICAL_CANDIDATES
    chosen: dict[str, int] = {}
    for term in sorted((term for term in counts if counts[term]), key=lambda term: counts[term])[:RARE_TERMS]:
        chosen[term] = min(counts[term], room)
        room -= chosen[term]
    return {term: limit for term, limit in chosen.items() if limit}


def joined(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Each memory once: with its best score and the summary of what scored so, be it the whole or a part.

    Its metadata is that of one which has all of it, if one of them has.
    """
    best: dict[str, Candidate] = {}
    for candidate in candidates:
        known = best.get(candidate.id)
        if known is None:
            best[candidate.id] = candidate
            continue
        better = candidate if candidate.score > known.score else known
        best[candidate.id] = replace(
            better,
            metadata=(known if candidate.is_shortened else candidate).metadata,
            held=_seen(known, candidate),
            by_vector=known.by_vector or candidate.by_vector,
            is_shortened=known.is_shortened and candidate.is_shortened,
        )
    return list(best.values())


def _seen(one: Candidate, other: Candidate) -> Mapping[str, int] | None:
    if one.held is None or other.held is None:
        return other.held if one.held is None else one.held
    return {**one.held, **other.held}


def unseen(candidates: Sequence[Candidate], counts: Mapping[str, int]) -> list[str]:
    """The ids of the candidates of which nobody knows yet what words they hold.

    There are none where all holders of every word were looked up: what is not among them holds none.
    """
    rare = rare_terms(counts)
    if all(count <= rare.get(term, 0) for term, count in counts.items()):
        return []
    return [candidate.id for candidate in candidates if candidate.held is None]


def ranked(candidates: Sequence[Candidate], counts: Mapping[str, int], weight: float) -> list[Match]:
    """The candidates, each there once, as matches, best first. With `weight` 0 the order is that of their scores."""
    lexical = _lexical([candidate.held or {} for candidate in candidates], counts)
    semantic = _spread([candidate.score for candidate in candidates])
    fused = {
        candidate.id: weight * words + (1 - weight) * meaning
        for candidate, words, meaning in zip(candidates, lexical, semantic, strict=True)
    }
    order = sorted(candidates, key=lambda candidate: (-fused[candidate.id], -candidate.score, candidate.id))
    rare = rare_terms(counts)
    return [_match(candidate, rare, len(counts)) for candidate in order]


def _lexical(held: Sequence[Mapping[str, int]], counts: Mapping[str, int]) -> list[float]:
    """What the words that each candidate holds say for it, 0..1: compared with the best of all, and with what was asked.

    Of words that more memories hold than can be looked up, the second counts the less, the more they are: they tell little.
    """
    rarity = _rarity(counts)
    telling = {term: rarity[term] * min(1, LEXICAL_CANDIDATES / count) for term, count in counts.items() if count}
    asked = sum(rarity[term] for term in (telling if _is_named(counts) else rarity))
    shares = [sum(telling[term] for term in telling if term in each) / asked if asked else 0.0 for each in held]
    sums = [sum(rarity[term] * _often(each[term]) for term in telling if term in each) for each in held]
    best = max(sums, default=0.0)
    return [value / best * share**_DOUBT if best else 0.0 for value, share in zip(sums, shares, strict=True)]


def _is_named(counts: Mapping[str, int]) -> bool:
    """Whether a rare identifier says what is meant, so that words beside it which nobody holds take nothing from it."""
    return any(0 < count <= LEXICAL_CANDIDATES and is_identifier(term) for term, count in counts.items())


def _rarity(counts: Mapping[str, int]) -> dict[str, float]:
    """What each word weighs. How many memories there are is not asked: that would cost reads and hardly changes the order."""
    most = max(counts.values(), default=0)
    return {term: math.log(1 + most / (count or _UNHELD)) for term, count in counts.items()}


def _often(times: int) -> float:
    return times / (times + _SATURATION)


def _spread(values: Sequence[float]) -> list[float]:
    """The values stretched to 0..1; all 0 where they are the same."""
    low, high = min(values, default=0), max(values, default=0)
    return [(value - low) / (high - low) if high > low else 0.0 for value in values]


def _match(candidate: Candidate, rare: Mapping[str, int], terms: int) -> Match:
    held = candidate.held or {}
    lexical = not rare.keys().isdisjoint(held)
    by = (
        MatchedBy.BOTH
        if lexical and candidate.by_vector
        else MatchedBy.VECTOR
        if candidate.by_vector
        else MatchedBy.LEXICAL
    )
    return Match(
        id=candidate.id,
        summary=candidate.summary,
        score=rules.score(candidate.score),
        metadata=candidate.metadata,
        matched_by=by,
        holds_all_terms=0 < terms <= len(held),
        is_shortened=candidate.is_shortened,
    )


def above_floor(matches: Sequence[Match], floor: float | None, limit: int) -> tuple[list[Match], int]:
    """The `limit` best matches that are not below the floor, and how many of the `limit` best of all are.

    A match that holds every word of the query is what was asked for by name, however its meaning is scored.
    """

    def is_below(match: Match) -> bool:
        return floor is not None and match.score < floor and not match.holds_all_terms

    kept = [match for match in matches if not is_below(match)]
    return kept[:limit], sum(map(is_below, matches[:limit]))
