"""Cursors of listings as properties: they lead back to where a page ended, under the same filters only."""

import base64
import dataclasses
import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builders import NOON
from metacortex import cursors, rules
from metacortex.errors import InvalidArgument
from metacortex.memory import BranchState, Origin
from metacortex.ports import ListFilters, Position

instants = st.integers(rules.EARLIEST_MS, rules.LATEST_MS)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
positions = st.builds(Position, created_at=instants, memory_id=st.uuids().map(str) | texts.filter(rules.is_document_id))
all_filters = st.builds(
    ListFilters,
    branch_state=st.sampled_from(BranchState),
    topic=st.none() | texts,
    origin=st.none() | st.sampled_from(Origin),
    created_after=st.none() | instants,
    created_before=st.none() | instants,
)
ACTIVE = ListFilters(branch_state=BranchState.ACTIVE)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def as_cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@given(positions, all_filters)
# The longest ids that Firestore takes, plain and such as JSON may have to escape.
@example(Position(created_at=NOON, memory_id="i" * 1_500), ACTIVE)
@example(Position(created_at=NOON, memory_id="é" * 750), ACTIVE)
@example(Position(created_at=NOON, memory_id="\x01" * 1_500), ACTIVE)
@example(Position(created_at=NOON, memory_id="🦉" * 375), ACTIVE)
def test_a_cursor_leads_back_to_its_position(position: Position, filters: ListFilters) -> None:
    assert cursors.decode(cursors.encode(position, filters), filters) == position


@given(positions, all_filters)
def test_a_cursor_needs_no_escaping_anywhere(position: Position, filters: ListFilters) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]+", cursors.encode(position, filters))


@given(positions, all_filters, all_filters)
def test_a_cursor_is_refused_with_other_filters(position: Position, made_with: ListFilters, asked: ListFilters) -> None:
    cursor = cursors.encode(position, made_with)
    if asked == made_with:
        return
    with pytest.raises(InvalidArgument, match="other filters"):
        cursors.decode(cursor, asked)


@given(positions, all_filters, st.data())
def test_every_filter_counts(position: Position, made_with: ListFilters, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(dataclasses.fields(ListFilters))).name
    asked = dataclasses.replace(made_with, **{name: getattr(data.draw(all_filters), name)})
    cursor = cursors.encode(position, made_with)
    if asked == made_with:
        assert cursors.decode(cursor, asked) == position
        return
    with pytest.raises(InvalidArgument, match="other filters"):
        cursors.decode(cursor, asked)


@given(
    st.text(st.characters(exclude_categories=[]))
    | st.text("ABCabc019-_=+/")
    | st.binary(max_size=50).map(lambda data: base64.urlsafe_b64encode(data).decode())
    | json_values.map(json.dumps).map(as_cursor),
    all_filters,
)
@example("", ACTIVE)
@example("A" * 1_000_000, ACTIVE)
@example(as_cursor("[" * 2_900), ACTIVE)
@example(as_cursor("9" * 2_900), ACTIVE)
@example(as_cursor("[1,1e999,NaN,Infinity]"), ACTIVE)
def test_what_is_no_cursor_is_refused_and_never_an_accident(junk: str, filters: ListFilters) -> None:
    with pytest.raises(InvalidArgument):
        cursors.decode(junk, filters)


@given(positions, all_filters, st.data())
def test_a_cursor_that_was_tampered_with_is_refused_or_leads_to_a_position(
    position: Position, filters: ListFilters, data: st.DataObject
) -> None:
    cursor = cursors.encode(position, filters)
    place = data.draw(st.integers(0, len(cursor)))
    inserted = data.draw(st.text(max_size=3))
    tampered = cursor[:place] + inserted + cursor[place + data.draw(st.integers(0, 3)) :]
    try:
        reached = cursors.decode(tampered, filters)
    except InvalidArgument:
        return
    assert rules.is_document_id(reached.memory_id)


@given(st.integers(), st.text(max_size=10), all_filters)
@example(2**63, "memory", ACTIVE)
@example(-(2**63) - 1, "memory", ACTIVE)
@example(NOON, "a/b", ACTIVE)
@example(NOON, "", ACTIVE)
def test_a_forged_position_is_one_that_the_store_takes_or_refused(
    created_at: int, memory_id: str, filters: ListFilters
) -> None:
    cursor = cursors.encode(Position(created_at=created_at, memory_id=memory_id), filters)
    try:
        reached = cursors.decode(cursor, filters)
    except InvalidArgument:
        assert not (rules.is_document_id(memory_id) and -(2**63) <= created_at < 2**63)
        return
    assert (reached.created_at, reached.memory_id) == (created_at, memory_id)
