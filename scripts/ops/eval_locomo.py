"""LoCoMo as a pack: one memory per turn, one case per question, as its authors publish them in `locomo10.json`.

LoCoMo (Maharana et al., 2024) is licensed CC BY-NC 4.0: fetch it from its authors, and use it for measuring only.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from metacortex.rules import parse_time
from ops.eval_pack import Pack, PackCase, PackMemory
from ops.local_settings import shown
from ops.processes import OpsError

LICENSE = "CC BY-NC 4.0 (LoCoMo, Maharana et al., 2024): for measuring only"
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
"""What its authors' evaluation calls them. The fifth is adversarial: those questions have no answer to retrieve."""
BETWEEN_TURNS = timedelta(seconds=20)
_SESSION_TIME = "%I:%M %p on %d %B, %Y"
# Some lists of evidence hold several turns in one text, others a turn with a leading zero.
_TURN = re.compile(r"D:?(\d+):0*(\d+)")

Sample = Mapping[str, Any]


def read_locomo(path: Path, conversations: int | None) -> Pack:
    """The first conversations of LoCoMo, or all of them. Raises OpsError where the file is something else."""
    try:
        samples = json.loads(path.read_bytes())
    except OSError as error:
        raise OpsError(f"{shown(path)} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise OpsError(f"{shown(path)} is not JSON; fetch data/locomo10.json of snap-research/LoCoMo again.") from None
    try:
        return _pack(samples[:conversations])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise OpsError(
            f"{shown(path)} is not what LoCoMo's authors publish as locomo10.json ({type(error).__name__}: {error})."
        ) from None


def _pack(samples: list[Sample]) -> Pack:
    memories: list[PackMemory] = []
    cases: dict[object, PackCase] = {}
    for number, sample in enumerate(samples):
        topic = f"locomo-{number}"
        turns = list(_memories(topic, sample["conversation"]))
        memories += turns
        for case in _cases(topic, sample["qa"], {turn.key for turn in turns}):
            first = cases.setdefault(case.asked, case)
            joined = {*first.positive_keys, *case.positive_keys}
            cases[case.asked] = first.model_copy(update={"positive_keys": tuple(sorted(joined))})
    if not cases:
        raise ValueError("it holds no question with an answer")
    return Pack(name=f"locomo-{len(samples)}", license=LICENSE, memories=tuple(memories), cases=tuple(cases.values()))


def _memories(topic: str, conversation: Mapping[str, Any]) -> Iterator[PackMemory]:
    sessions = (name for name in conversation if re.fullmatch(r"session_\d+", name))
    for session in sorted(sessions, key=lambda name: int(name.rpartition("_")[2])):
        began = datetime.strptime(conversation[f"{session}_date_time"], _SESSION_TIME).replace(tzinfo=UTC)
        for place, turn in enumerate(conversation[session]):
            yield PackMemory(
                key=f"{topic}-{turn['dia_id']}",
                topic=topic,
                content=_content(turn),
                created_at=parse_time((began + place * BETWEEN_TURNS).isoformat()),
            )


def _content(turn: Mapping[str, Any]) -> str:
    caption = turn.get("blip_caption")
    return f"{turn['speaker']}: {turn['text']}" + (f" [shared image: {caption}]" if caption else "")


def _cases(topic: str, questions: list[Mapping[str, Any]], keys: set[str]) -> Iterator[PackCase]:
    """A case per question that names turns as its evidence."""
    for question in questions:
        found = {f"{topic}-D{session}:{turn}" for session, turn in _TURN.findall(" ".join(question["evidence"]))}
        category = CATEGORIES.get(question["category"])
        if category and found & keys:
            yield PackCase(
                query=question["question"],
                filter_topic=topic,
                positive_keys=tuple(sorted(found & keys)),
                category=category,
            )
