"""How an archive writes what Firestore keeps."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from google.cloud.firestore_v1 import GeoPoint
from google.cloud.firestore_v1.vector import Vector
from hypothesis import given
from hypothesis import strategies as st

from archives import kinds
from ops.archive_lines import archived, read_line
from ops.archive_values import Reference, from_json, to_json

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(),
    st.binary(),
    st.datetimes(min_value=datetime(1, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - hypothesis adds the zone
    st.builds(GeoPoint, st.floats(-90, 90), st.floats(-180, 180)),
    st.builds(Reference, st.just("memory_vectors/one")),
    st.lists(st.floats(), max_size=3).map(Vector),
)
names = st.text(max_size=5) | st.sampled_from(["$map", "$double", "$bytes", "$", "id"])
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)


@given(values)
def test_every_kind_of_value_comes_back_as_it_was(value: Any) -> None:
    told = json.dumps(to_json(value), allow_nan=False)
    assert kinds(from_json(json.loads(told), Reference)) == kinds(value)


@given(st.dictionaries(names, values, max_size=5))
def test_every_memory_is_one_line_that_is_read_again(fields: dict[str, Any]) -> None:
    memory = archived("an id", fields, ())
    assert memory.line.index(b"\n") == len(memory.line) - 1
    again = read_line(memory.line, Reference)
    assert (again.id, kinds(again.fields)) == ("an id", kinds(memory.fields))


def test_the_order_of_keys_does_not_show() -> None:
    one, other = {"b": 1, "a": {"d": 1, "c": 2}}, {"a": {"c": 2, "d": 1}, "b": 1}
    assert archived("x", one, ()).line == archived("x", other, ()).line


def test_values_that_json_has_no_word_for_are_written_as_the_guide_says() -> None:
    value = {
        "when": datetime(2026, 3, 1, 12, tzinfo=UTC),
        "bytes": b"\x00\xff",
        "place": GeoPoint(52.5, 13.4),
        "other": Reference("memory_vectors/one"),
        "vector": Vector([1.0, 0.5]),
        "whole": 1,
        "double": 1.0,
        "endless": -math.inf,
        "map": {"$price": 3},
    }
    assert to_json(value) == {
        "when": {"$timestamp": "2026-03-01T12:00:00.000000Z"},
        "bytes": {"$bytes": "AP8="},
        "place": {"$geo": [52.5, 13.4]},
        "other": {"$reference": "memory_vectors/one"},
        "vector": {"$vector": [1.0, 0.5]},
        "whole": 1,
        "double": 1.0,
        "endless": {"$double": "-Infinity"},
        "map": {"$map": {"$price": 3}},
    }
    assert json.dumps([to_json(1), to_json(1.0)]) == "[1, 1.0]"


def test_what_is_made_from_a_memory_is_left_out_and_all_else_is_kept() -> None:
    made = {
        "summary": "x",
        "terms": {},
        "parts": 3,
        "embedding": [1.0, 0.0],
        "embedding_2": Vector([1.0]),
        "embedding_old": Vector([1.0]),
        "embedding_space": "plane@2/plain",
        "listed": Vector([1.0]),
    }
    kept = {"content": "x", "embedding_note": "by hand", "tuned": Vector([1.0]), "metadata": {"reviewer": None}}
    assert archived("x", {**made, **kept}, {"listed"}).fields == kept


@pytest.mark.parametrize(
    "fields",
    [
        '{"$bytes": "x"}',
        '{"$bytes": 5}',
        '{"$unknown": 1}',
        '{"$map": 5}',
        '{"a": {"$timestamp": "yesterday"}}',
        '{"a": {"$timestamp": "2026-03-01T12:00:00Z"}}',
        '{"a": {"$geo": [1.0]}}',
        '{"a": {"$double": "1.5"}}',
        '{"a": {"$reference": "alone"}}',
        '{"a": {"$reference": 5}}',
        '{"a": {"$vector": "x"}}',
        '{"a": {"$map": {"b": 1}}}',
        '{"a": 9223372036854775808}',
        '{"a": NaN}',
        '{"a": "\\ud800"}',
        '{"a": 1, "a": 1}',
        '{"b": 1, "a": 1}',
        '{"a" : 1}',
        "[1]",
        "[" * 100_000,
    ],
)
def test_a_line_that_no_export_wrote_is_refused(fields: str) -> None:
    with pytest.raises(ValueError, match=r"does not hold a memory|is not as this command writes"):
        read_line(f'{{"id":"x","fields":{fields}}}\n'.encode(), Reference)


@pytest.mark.parametrize("memory_id", ['"a/b"', '""', "5", "null", '"__x__"', '".."'])
def test_an_id_that_firestore_would_refuse_is_refused(memory_id: str) -> None:
    with pytest.raises(ValueError, match="does not hold a memory"):
        read_line(f'{{"id":{memory_id},"fields":{{}}}}\n'.encode(), Reference)


def test_a_kind_that_is_not_known_is_not_written() -> None:
    with pytest.raises(TypeError, match="a value of the kind complex"):
        to_json({"a": 1j})
