"""The rules of memory as properties: what holds for every text, time and write."""

import base64
import dataclasses
import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images import WHOLE
from metacortex import rules
from metacortex.errors import InvalidArgument
from metacortex.memory import BranchState, Draft, Image, Metadata, Modality, Origin, Provenance, SupersessionReason

FIRST = rules.parse_time("0001-01-01")
LAST = rules.parse_time("9999-12-31T23:59:59.999")
instants = st.integers(FIRST, LAST)
texts = st.text(st.characters(exclude_categories=["Cs"]))
drafts = st.builds(
    Draft,
    content=texts,
    topic=texts,
    branch_state=st.sampled_from(BranchState),
    provenance=st.builds(
        Provenance,
        origin=st.sampled_from(Origin),
        source_session=st.none() | texts,
        derived_from=st.lists(texts, max_size=2).map(tuple),
        confidence=st.none() | st.floats(0, 1),
    ),
    image=st.none()
    | st.builds(Image, mime_type=st.sampled_from(["image/png", "image/gif"]), data=st.binary(max_size=4)),
    artifact_refs=st.lists(texts, max_size=2).map(tuple),
    valid_from=st.none() | instants,
    valid_until=st.none() | instants,
)


# --- Time ---


@given(instants)
def test_a_time_that_is_shown_reads_back_as_the_same_instant(moment: int) -> None:
    assert rules.parse_time(rules.format_time(moment)) == rules.parse_time(moment) == moment


@given(instants, st.integers(-14 * 60, 14 * 60))
def test_a_zone_changes_the_text_but_not_the_instant(moment: int, minutes: int) -> None:
    zone = datetime.timezone(datetime.timedelta(minutes=minutes))
    try:
        text = datetime.datetime.fromisoformat(rules.format_time(moment)).astimezone(zone).isoformat()
    except OverflowError:
        return
    assert rules.parse_time(text) == moment


@given(st.integers() | st.floats() | st.text(max_size=12) | st.booleans() | st.none() | st.lists(st.integers()))
def test_whatever_is_accepted_can_be_shown(value: object) -> None:
    try:
        moment = rules.parse_time(value)
    except ValueError:
        return
    assert FIRST <= moment <= LAST
    assert len(rules.format_time(moment)) == len("2026-03-14T12:00:00.000Z")


@pytest.mark.parametrize("value", [FIRST - 1, LAST + 1, "0001-01-01T00:00+00:01", "9999-12-31T23:59:59.999-00:01"])
def test_years_outside_1_to_9999_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="ISO 8601"):
        rules.parse_time(value)


@given(st.none() | instants, st.none() | instants, instants)
def test_a_memory_holds_from_its_first_instant_until_just_before_its_last(
    valid_from: int | None, valid_until: int | None, moment: int
) -> None:
    known = Metadata(
        topic="t",
        branch_state=BranchState.ACTIVE,
        modality=Modality.TEXT,
        valid_from=valid_from,
        valid_until=valid_until,
    )
    begin = FIRST if valid_from is None else valid_from
    end = LAST + 1 if valid_until is None else valid_until
    assert rules.is_valid_at(known, moment) is (begin <= moment < end)
    corrected = dataclasses.replace(known, supersession_reason=SupersessionReason.CORRECTED)
    assert not rules.is_valid_at(corrected, moment)


# --- Text ---


@given(texts)
def test_content_is_trimmed_and_otherwise_untouched(text: str) -> None:
    assert rules.content(text) == text.strip()


@given(texts)
def test_a_summary_is_one_line_within_its_length_and_empty_only_for_blank_text(text: str) -> None:
    summary = rules.summary(text)
    assert len(summary) <= 220
    assert summary.split() == summary.split(" ") or not summary
    assert bool(summary) is bool(text.strip())
    assert summary == " ".join(text.split()) or summary.endswith("...")


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_half_a_surrogate_pair_is_refused_everywhere(text: str) -> None:
    for refuse in (rules.content, rules.topic, rules.query, lambda text: rules.artifact_refs([text])):
        with pytest.raises(InvalidArgument, match="surrogate"):
            refuse(text)
    assert not rules.is_document_id(text)


@given(texts.filter(bool), st.integers(1, 7))
def test_pages_join_to_the_whole(text: str, size: int) -> None:
    pages: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page, offset = rules.page(text, offset, size)
        pages.append(page)
    assert "".join(pages) == text
    assert all(len(page) == size for page in pages[:-1])


# --- Sameness ---


@given(drafts, drafts)
def test_two_writes_have_one_fingerprint_exactly_if_they_are_equal(one: Draft, other: Draft) -> None:
    assert (rules.fingerprint(one) == rules.fingerprint(other)) is (one == other)


@given(drafts, st.data())
def test_every_detail_of_a_write_is_in_its_fingerprint(draft: Draft, data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(dataclasses.fields(Draft))).name
    other = dataclasses.replace(draft, **{field: getattr(data.draw(drafts), field)})
    assert (rules.fingerprint(draft) == rules.fingerprint(other)) is (draft == other)


@given(st.floats(allow_nan=True))
def test_a_score_is_between_zero_and_one_whatever_the_distance(similarity: float) -> None:
    assert 0 <= rules.score(similarity) <= 1


# --- Images ---


@pytest.mark.parametrize("mime_type", WHOLE)
def test_an_image_is_recognised_as_its_own_kind_only(mime_type: str) -> None:
    encoded = base64.b64encode(WHOLE[mime_type]).decode()
    family = {"image/heic", "image/heif"}
    for claimed in rules.IMAGE_MIME_TYPES:
        if claimed == mime_type or {claimed, mime_type} <= family:
            assert rules.image(encoded, claimed) == Image(mime_type=claimed, data=WHOLE[mime_type])
        else:
            with pytest.raises(InvalidArgument):
                rules.image(encoded, claimed)


@given(st.text(), st.sampled_from([*rules.IMAGE_MIME_TYPES, "", "text/html"]))
def test_what_is_no_image_is_refused_and_never_an_accident(encoded: str, mime_type: str) -> None:
    with pytest.raises(InvalidArgument):
        rules.image(encoded, mime_type)
