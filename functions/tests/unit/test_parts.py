"""The parts of a long text, the day it is dated with, and the direction of several vectors."""

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metacortex import rules

PIECES = st.sampled_from(["owl", "Barn", "雾凇", "。", ". ", "! ", "\n", "\n\n", " \n \n", " ", "  ", "🦉", "x" * 90])
TEXTS = st.lists(PIECES, max_size=120).map("".join).map(str.strip)
SIZES = st.integers(8, 200)


# --- What holds for every text ---


@given(TEXTS, SIZES)
@example("x" * 1_000, 8)
@example("a" + "\n" * 500 + "b", 20)
def test_parts_are_stretches_of_the_text_no_longer_than_asked_and_none_is_blank(text: str, size: int) -> None:
    for part in rules.parts(text, size):
        assert part in text
        assert 0 < len(part) <= size
        assert part.strip()


@given(st.lists(st.sampled_from(["", "", "", " ", "\n", "\n\n", " " * 70, "\n" * 300]), max_size=400), SIZES)
def test_parts_cover_all_that_can_be_seen_and_overlap(blanks: list[str], size: int) -> None:
    # Every character is there once, so that a part says where it lies.
    text = "".join(f"{chr(0x4E00 + place)}{blank}" for place, blank in enumerate(blanks)).strip()
    parts = rules.parts(text, size)
    if len(text) <= size:
        assert parts == []
        return
    begins = [text.index(part.strip()[0]) - part.index(part.strip()[0]) for part in parts]
    places = [(begin, begin + len(part)) for begin, part in zip(begins, parts, strict=True)]
    assert [text[begin:end] for begin, end in places] == parts
    assert (places[0][0], places[-1][1]) == (0, len(text))
    for (begin, end), (following, _) in itertools.pairwise(places):
        assert begin < following
        assert end - begin > size // 2
        assert following < end or not text[end:following].strip()
        assert end - following <= size // 4


@pytest.mark.parametrize("size", range(1, 8))
def test_even_the_smallest_size_comes_to_an_end(size: int) -> None:
    parts = rules.parts("a b. c\n\nd" * 5, size)
    assert all(len(part) <= size for part in parts)
    assert parts[-1].endswith("d")


# --- Where they are cut ---


def test_a_text_that_fits_has_no_parts() -> None:
    assert rules.parts("x" * 100, 100) == []
    assert rules.parts("", 100) == []
    assert len(rules.parts("x" * 101, 100)) == 2


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("One owl. " * 8 + "A barn.\n\nTwo owls. " + "Three owls. " * 9, "A barn.\n\n"),
        ("One owl, " * 8 + "a barn. Two owls, " + "three owls, " * 9, "a barn. "),
        ("One owl and " * 7 + "\n" + "three owls and " * 9, "\n"),
        ("oneowland " * 30, "oneowland "),
        ("雾凇" * 40 + "拼音。" + "雾凇" * 50, "拼音。"),
        ("猫は寝る！" * 30, "猫は寝る！"),
        ("x" * 300, "x" * 100),
    ],
)
def test_a_part_ends_where_a_paragraph_a_sentence_or_at_least_a_word_does(text: str, ends: str) -> None:
    assert rules.parts(text, 100)[0].endswith(ends)


def test_a_part_begins_with_a_sentence_or_at_least_a_word() -> None:
    sentences = "".join(f"Sentence {number}. " for number in range(100))
    assert all(part.startswith("Sentence ") for part in rules.parts(sentences, 200))
    words = "".join(f"word{number} " for number in range(100))
    assert all(part.startswith("word") for part in rules.parts(words, 200))


def test_a_fact_at_a_cut_is_whole_in_one_of_the_parts() -> None:
    for before in range(60, 140):
        text = "x" * before + " The owl is called Minka. " + "y" * 200
        assert any("The owl is called" in part for part in rules.parts(text, 120))


def test_blank_stretches_are_no_parts() -> None:
    parts = rules.parts("One." + " \n" * 500 + "Two.", 100)
    assert [part.strip() for part in parts] == ["One.", "Two."]


@pytest.mark.parametrize(
    "text", ["雾" * 133_333, "a" * 400_000, "a\n\n" * 133_333, " \n" * 199_999 + "ab", "a. " * 133_333]
)
@pytest.mark.parametrize("page", [1_000, 1_500, 3_000])
def test_the_longest_texts_have_no_more_parts_than_one_commit_holds(text: str, page: int) -> None:
    assert len(rules.stretches(text, page)) <= rules.MOST_PARTS


@pytest.mark.parametrize("page", [1_000, 1_500, 3_000])
def test_even_of_parts_that_end_as_early_as_they_may_there_are_no_more(page: int) -> None:
    size = max(page, 2 * 400_000 // rules.MOST_PARTS)
    # One paragraph ends where the next part may begin at the earliest, and the one after it where that part may end so.
    paragraphs = "x" * (size // 4 - 4) + "\n\n" + "x" * (size // 4 + 4) + "\n\n"
    text = (paragraphs * (400_000 // len(paragraphs))).strip()
    assert 0.8 * rules.MOST_PARTS < len(rules.stretches(text, page)) <= rules.MOST_PARTS


# --- The day ---


@pytest.mark.parametrize(
    ("time", "day"),
    [
        ("2023-05-08T23:59:59.999Z", "8 May 2023"),
        ("2023-05-09T01:00:00+02:00", "8 May 2023"),
        ("2026-12-31", "31 December 2026"),
        ("1969-12-31T23:59:59Z", "31 December 1969"),
        ("0001-01-01", "1 January 1"),
        ("9999-12-31T23:59:59.999Z", "31 December 9999"),
    ],
)
def test_a_day_is_written_as_people_say_it_in_utc(time: str, day: str) -> None:
    assert rules.day(rules.parse_time(time)) == day


@given(st.integers(rules.EARLIEST_MS, rules.LATEST_MS))
def test_every_time_has_a_day(moment: int) -> None:
    day, month, year = rules.day(moment).split()
    shown = rules.format_time(moment)
    assert shown.startswith(f"{int(year):04}-")
    assert shown[8:10] == f"{int(day):02}"
    assert month.isalpha()


# --- Directions ---

VECTORS = st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1), st.floats(-1, 1)), min_size=1, max_size=9)


@given(VECTORS)
def test_a_mean_direction_is_a_unit_vector_whatever_the_order(vectors: list[Sequence[float]]) -> None:
    if math.hypot(*(math.fsum(values) for values in zip(*vectors, strict=True))) <= 1e-9:
        assert rules.mean_direction(vectors) == tuple(vectors[0])
        return
    mean = rules.mean_direction(vectors)
    assert math.isclose(math.hypot(*mean), 1)
    assert mean == rules.mean_direction(vectors[::-1])


def test_a_mean_direction_lies_between_and_that_of_one_is_its_own() -> None:
    assert rules.mean_direction([(1.0, 0.0), (0.0, 1.0)]) == pytest.approx((math.sqrt(0.5), math.sqrt(0.5)))
    assert rules.mean_direction([(0.6, 0.8)]) == pytest.approx((0.6, 0.8))
    assert rules.mean_direction([(1.0, 0.0), (-1.0, 0.0)]) == (1.0, 0.0)


@given(VECTORS, VECTORS)
def test_similarity_is_symmetric_and_between_minus_1_and_1(
    ones: list[Sequence[float]], others: list[Sequence[float]]
) -> None:
    one, other = ones[0], others[0]
    assert abs(rules.similarity(one, other)) <= 1 + 1e-9
    assert rules.similarity(one, other) == rules.similarity(other, one)
    if math.hypot(*one) > 1e-3:
        assert rules.similarity(one, one) == pytest.approx(1)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((1.0, 0.0), (0.6, 0.8), 0.6),
        ((3.0, 0.0), (0.0, 0.5), 0.0),
        ((2.0, 0.0), (-1.0, 0.0), -1.0),
        ((0.0, 0.0), (1.0, 0.0), 0.0),
        ((5.0, 5.0), (0.1, 0.1), 1.0),
    ],
)
def test_similarity_is_the_cosine_whatever_the_lengths(
    one: Sequence[float], other: Sequence[float], expected: float
) -> None:
    assert rules.similarity(one, other) == pytest.approx(expected)
