"""Packs: what is told of a faulty one, the synthetic one, and how LoCoMo becomes one."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaluation import BIRDS, OWL, Document, case, invoke, memory, said
from ops.eval_generate import synthetic
from ops.eval_pack import parse_pack, read_pack


def refusal(tmp_path: Path, text: str) -> str:
    file = tmp_path / "pack.json"
    file.write_text(text)
    result = invoke("load", str(file), "--project", "demo-nowhere")
    assert result.exit_code == 1
    assert result.stdout == ""
    return said(result)


def with_memory(**fields: Any) -> Document:
    return {**BIRDS, "memories": [*BIRDS["memories"], {**memory("fourth", "Gulls shriek."), **fields}]}


def with_case(**fields: Any) -> Document:
    return {**BIRDS, "cases": [*BIRDS["cases"], {**case("who shrieks", "owl"), **fields}]}


@pytest.mark.parametrize(
    ("pack", "says"),
    [
        ({**BIRDS, "name": ""}, "name: must not be empty."),
        ({**BIRDS, "cases": []}, "cases: must have at least one entry."),
        (with_memory(created_at="tomorrow"), "memories[3].created_at: not a time this service can keep; send epoch"),
        (with_memory(created_at=None), "memories[3].created_at: not a time"),
        (with_memory(content="  "), "memories[3].content: a memory needs a text."),
        (with_memory(content="x" * 400_001), "memories[3].content: content is 400,001 bytes of UTF-8 and the limit"),
        (with_memory(origin="hearsay"), "memories[3].origin: input should be 'user_asserted', 'agent_inferred' or"),
        (with_memory(colour="grey"), "memories[3].colour: is not a field of this record."),
        (with_memory(key="owl"), "memories[3].key: is that of memories[0] too; give each its own."),
        (with_memory(superseded_by="dodo"), "memories[3].superseded_by: is the key of no memory in this pack."),
        (with_memory(superseded_by="fourth"), "memories[3].superseded_by: names the memory itself."),
        (
            with_memory(superseded_by="owl", branch_state="deprecated"),
            "memories[3].branch_state: cannot be deprecated from the start where the memory is deprecated later",
        ),
        (
            with_memory(valid_from="2025-02-01", valid_until="2025-01-01"),
            "memories[3].valid_from: must be earlier than valid_until.",
        ),
        (with_case(positive_keys=["owl", "dodo"]), "cases[3].positive_keys[1]: is the key of no memory in this pack."),
        (with_case(query=" "), "cases[3].query: query is blank"),
        (with_case(valid_at="soon"), "cases[3].valid_at: not a time"),
        (
            with_case(query=BIRDS["cases"][0]["query"]),
            "cases[3]: asks the same as cases[0]; join their positive_keys.",
        ),
    ],
)
def test_a_fault_is_told_with_its_place(tmp_path: Path, pack: Document, says: str) -> None:
    assert says in refusal(tmp_path, json.dumps(pack))


def test_all_faults_are_told_at_once_up_to_twenty(tmp_path: Path) -> None:
    spoilt = {**BIRDS, "memories": [{**OWL, "key": f"owl-{number}", "topic": 7} for number in range(25)]}
    told = refusal(tmp_path, json.dumps(spoilt))
    assert told.startswith("20 faults in ")
    assert "pack.json (the first of 25):" in told
    assert told.count(".topic: input should be a valid string.") == 20


@pytest.mark.parametrize("text", ["", "[]", "{", '{"name": "x"}'])
def test_what_is_no_pack_is_refused(tmp_path: Path, text: str) -> None:
    assert "pack.json:" in refusal(tmp_path, text)


def test_no_project_is_chosen_for_anybody(tmp_path: Path) -> None:
    file = tmp_path / "pack.json"
    file.write_text(json.dumps(BIRDS))
    for arguments in (("load", str(file)), ("generate",), ("run",), ("import", "--lookback-hours", "1")):
        result = invoke(*arguments, FIRESTORE_EMULATOR_HOST=None)
        assert result.exit_code == 2
        assert "is needed: the Google Cloud project" in " ".join(result.stderr.replace("│", " ").split())


# --- The synthetic one ---


def test_the_same_seed_makes_the_same_corpus_and_another_one_another() -> None:
    assert synthetic(1) == synthetic(1)
    assert synthetic(1) != synthetic(2)


@pytest.mark.parametrize("seed", range(5))
def test_every_synthetic_pack_is_a_pack_as_others_write_them(tmp_path: Path, seed: int) -> None:
    out = tmp_path / "synthetic.json"
    result = invoke("pack", "synthetic", "--seed", str(seed), "--out", str(out))
    pack = read_pack(out)
    assert result.stdout == f"{out} has {len(pack.memories)} memories and {len(pack.cases)} cases.\n"
    assert pack == synthetic(seed)
    assert 60 <= len(pack.memories) <= 150
    assert 60 <= len(pack.cases) <= 180


# --- LoCoMo ---

CONVERSATION: Document = {
    "speaker_a": "A",
    "speaker_b": "B",
    "session_10_date_time": "12:05 am on 2 January, 2024",
    "session_10": [{"speaker": "A", "dia_id": "D10:1", "text": "The tenth."}],
    "session_2_date_time": "1:56 pm on 8 May, 2023",
    "session_2": [
        {"speaker": "A", "dia_id": "D2:1", "text": "I have a kite."},
        {"speaker": "B", "dia_id": "D2:2", "text": "Look! ", "blip_caption": "a red kite", "query": "kite"},
    ],
    "session_3_date_time": "9:00 am on 9 May, 2023",
}


def question(text: str, category: int, *evidence: str) -> Document:
    return {"question": text, "answer": 1, "category": category, "evidence": list(evidence)}


SAMPLE: Document = {
    "sample_id": "conv-1",
    "conversation": CONVERSATION,
    "qa": [
        question("Who has a kite?", 4, "D2:1"),
        question("When was the tenth?", 2, "D2:2; D2:01", " D:10:1"),
        question("Which hobbies?", 1, "D2:2", "D2:1"),
        question("Would they fly?", 3, "D2:1", "D99:1"),
        question("Who has a kite?", 1, "D2:2"),
        question("Who has no kite?", 5, "D2:1"),
        question("What is not said?", 3),
        question("What is lost?", 4, "D99:1"),
    ],
}


def locomo(tmp_path: Path, samples: object, *arguments: str) -> Any:
    file, out = tmp_path / "locomo10.json", tmp_path / "pack.json"
    file.write_text(json.dumps(samples))
    return invoke("pack", "locomo", str(file), "--out", str(out), *arguments), out


def test_locomos_turns_become_memories_in_their_order_and_time(tmp_path: Path) -> None:
    _, out = locomo(tmp_path, [SAMPLE])
    pack = json.loads(out.read_text())
    assert pack["name"] == "locomo-1"
    assert pack["license"].startswith("CC BY-NC 4.0")
    assert pack["memories"] == [
        {
            "key": "locomo-0-D2:1",
            "topic": "locomo-0",
            "content": "A: I have a kite.",
            "created_at": "2023-05-08T13:56:00.000Z",
        },
        {
            "key": "locomo-0-D2:2",
            "topic": "locomo-0",
            "content": "B: Look!  [shared image: a red kite]",
            "created_at": "2023-05-08T13:56:20.000Z",
        },
        {
            "key": "locomo-0-D10:1",
            "topic": "locomo-0",
            "content": "A: The tenth.",
            "created_at": "2024-01-02T00:05:00.000Z",
        },
    ]


def test_locomos_questions_become_cases_where_their_evidence_can_be_found(tmp_path: Path) -> None:
    _, out = locomo(tmp_path, [SAMPLE])
    cases = [(each["query"], each["category"], each["positive_keys"]) for each in json.loads(out.read_text())["cases"]]
    assert cases == [
        ("Who has a kite?", "single-hop", ["locomo-0-D2:1", "locomo-0-D2:2"]),
        ("When was the tenth?", "temporal", ["locomo-0-D10:1", "locomo-0-D2:1", "locomo-0-D2:2"]),
        ("Which hobbies?", "multi-hop", ["locomo-0-D2:1", "locomo-0-D2:2"]),
        ("Would they fly?", "open-domain", ["locomo-0-D2:1"]),
    ]
    assert parse_pack(out.read_bytes(), "pack").cases[0].filter_topic == "locomo-0"


def test_only_the_first_conversations_are_taken_where_that_is_asked(tmp_path: Path) -> None:
    result, out = locomo(tmp_path, [SAMPLE, SAMPLE, SAMPLE], "--conversations", "2")
    pack = json.loads(out.read_text())
    assert {each["topic"] for each in pack["memories"]} == {"locomo-0", "locomo-1"}
    assert result.stdout == f"{out} has 6 memories and 8 cases.\n"


@pytest.mark.parametrize(
    "samples", [{}, [], [{"qa": []}], [{**SAMPLE, "conversation": {**CONVERSATION, "session_2_date_time": "noon"}}], 7]
)
def test_what_is_not_locomo_is_refused(tmp_path: Path, samples: object) -> None:
    result, out = locomo(tmp_path, samples)
    assert result.exit_code == 1
    assert "locomo10.json is not what LoCoMo's authors publish" in said(result)
    assert not out.exists()
