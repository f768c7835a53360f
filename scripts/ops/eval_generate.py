"""The synthetic corpus as a pack: the same for the same seed, and free for anybody to use.

In the lifecycle cases the filters decide: with them exactly one memory is left, however texts are ranked. Without them its
rivals repeat the question nearly word for word.
"""

import random
from collections.abc import Iterator, Sequence

from metacortex.memory import BranchState, Origin, SupersessionReason
from metacortex.rules import parse_time
from ops import eval_corpus as corpus
from ops.eval_pack import Pack, PackCase, PackMemory

FIRST_YEAR = 2019
YEARS = 6
VERSIONS = 6
INCIDENTS = 12
DAY_MS = 24 * 60 * 60 * 1000
BEGIN = parse_time("2025-01-06T08:00:00Z")

Part = Iterator[PackMemory | PackCase]


def synthetic(seed: int) -> Pack:
    chance = random.Random(seed)  # noqa: S311 - the same texts for the same seed, nothing secret
    everything = [
        *_facts(),
        *_incidents(chance),
        *_several(),
        *_changed(chance),
        *_corrected(chance),
        *_valid_for_a_year(chance),
        *_states(),
        *_origins(),
        *_projects(chance),
        *_off_topic(),
    ]
    memories = [entry for entry in everything if isinstance(entry, PackMemory)]
    # The order in which memories are saved must not matter.
    chance.shuffle(memories)
    return Pack(
        name=f"synthetic-{seed}",
        license="MIT, as MetaCortex",
        memories=tuple(memories),
        cases=tuple(entry for entry in everything if isinstance(entry, PackCase)),
    )


def _day(number: int) -> int:
    return BEGIN + number * DAY_MS


def _year(number: int) -> int:
    return parse_time(f"{FIRST_YEAR + number}-01-01")


def _facts() -> Part:
    for number, fact in enumerate(corpus.FACTS):
        key = f"fact-{number}"
        yield PackMemory(key=key, topic=fact.topic, content=fact.text, created_at=_day(number))
        yield PackMemory(
            key=f"{key}-neighbour", topic=fact.topic, content=fact.neighbour, created_at=_day(number) + 60_000
        )
        yield PackCase(query=fact.question, positive_keys=(key,), category="paraphrase")


def _incidents(chance: random.Random) -> Part:
    topic, text = corpus.INCIDENT
    codes = [f"{letter}-{number}" for letter, number in zip("ERXQ" * 3, _numbers(chance, INCIDENTS), strict=True)]
    versions = [f"{chance.randint(2, 9)}.{minor}.{chance.randint(0, 30)}" for minor in range(INCIDENTS)]
    for number, (code, version) in enumerate(zip(codes, versions, strict=True)):
        service = corpus.SERVICES[number % len(corpus.SERVICES)]
        content = text.format(
            code=code, version=version, service=service, status=chance.choice((500, 502, 503)), cause=_cause(number)
        )
        key = f"incident-{number}"
        yield PackMemory(key=key, topic=topic, content=content, created_at=_day(40 + number))
        query = f"What was {code}?" if number % 2 else f"what did release {version} fix"
        yield PackCase(query=query, positive_keys=(key,), category="identifier")


def _cause(number: int) -> str:
    return corpus.CAUSES[number // 2 % len(corpus.CAUSES)]


def _numbers(chance: random.Random, count: int) -> Sequence[int]:
    """Distinct numbers of four digits."""
    return chance.sample(range(1_000, 10_000), count)


def _several() -> Part:
    for topic, text, values in corpus.MANY:
        for number, value in enumerate(values):
            content = text.format(value=value)
            yield PackMemory(key=f"{topic}-{number}", topic=topic, content=content, created_at=_day(60 + number))
    for question, topic in corpus.MANY_QUESTIONS:
        keys = tuple(f"{topic}-{number}" for number in range(3))
        yield PackCase(query=question, positive_keys=keys, category="several")


# --- Lifecycle ---


def _changed(chance: random.Random) -> Part:
    """Values that followed each other: the current one is active, each of the others held for thirty days."""
    for series in corpus.CHANGES:
        values = _numbers(chance, VERSIONS)
        keys = [f"{series.topic}-{number}" for number in range(VERSIONS)]
        for number, value in enumerate(values):
            is_current = number == VERSIONS - 1
            yield PackMemory(
                key=keys[number],
                topic=series.topic,
                content=(series.current if is_current else series.old).format(value=value),
                created_at=_day(30 * number),
                valid_from=_day(30 * number),
                superseded_by=None if is_current else keys[number + 1],
            )
        category = "lifecycle-superseded"
        for question in (series.question, series.other_question):
            yield PackCase(query=question, filter_topic=series.topic, positive_keys=(keys[-1],), category=category)
        for number in (0, 1, 3, 4):
            yield PackCase(
                query=series.question,
                filter_topic=series.topic,
                filter_state=BranchState.DEPRECATED,
                valid_at=_day(30 * number + chance.randint(0, 29)),
                positive_keys=(keys[number],),
                category=category,
            )


def _corrected(chance: random.Random) -> Part:
    """Mistakes never held, at no time; before them something else did."""
    series, category = corpus.CORRECTED, "lifecycle-corrected"
    moved, *mistakes, right = _numbers(chance, VERSIONS + 1)
    yield PackMemory(
        key="club-right", topic=series.topic, content=series.current.format(value=right), created_at=_day(20)
    )
    yield PackMemory(
        key="club-moved",
        topic=series.topic,
        content=f"Until the building was renovated, the club used room {moved} on the upper floor.",
        created_at=_day(0),
        superseded_by="club-right",
    )
    for number, value in enumerate(mistakes):
        yield PackMemory(
            key=f"club-mistake-{number}",
            topic=series.topic,
            content=series.old.format(value=value),
            created_at=_day(number + 1),
            superseded_by="club-right",
            supersession_reason=SupersessionReason.CORRECTED,
        )
    for question in (series.question, series.other_question):
        yield PackCase(query=question, filter_topic=series.topic, positive_keys=("club-right",), category=category)
        yield PackCase(
            query=question,
            filter_topic=series.topic,
            filter_state=BranchState.DEPRECATED,
            valid_at=_day(10),
            positive_keys=("club-moved",),
            category=category,
        )


def _valid_for_a_year(chance: random.Random) -> Part:
    """Active memories of which each holds for a year, the last one for good; asked for within it and at its edges."""
    for series in corpus.PRICES:
        values = _numbers(chance, YEARS)
        keys = [f"{series.topic}-{number}" for number in range(YEARS)]
        for number, value in enumerate(values):
            is_last = number == YEARS - 1
            yield PackMemory(
                key=keys[number],
                topic=series.topic,
                content=(series.current if is_last else series.old).format(value=value, year=FIRST_YEAR + number),
                created_at=_year(number),
                valid_from=_year(number),
                valid_until=None if is_last else _year(number + 1),
            )
        moments = [(number, _year(number) + chance.randint(1, 360) * DAY_MS) for number in range(YEARS)]
        edges = [(1, _year(1)), (1, _year(2) - 1), (2, _year(2)), (5, _year(5)), (5, _year(YEARS) + DAY_MS)]
        for number, moment in (*moments, *edges):
            yield PackCase(
                query=series.question if number % 2 else series.other_question,
                filter_topic=series.topic,
                valid_at=moment,
                positive_keys=(keys[number],),
                category="lifecycle-validity",
            )


def _states() -> Part:
    """What is found in its own state only: what was settled, what is a draft, what was merged."""
    for family in corpus.STATES:
        key = f"{family.topic}-single"
        yield PackMemory(
            key=key,
            topic=family.topic,
            content=family.single,
            created_at=_day(90),
            branch_state=family.single_state,
        )
        for number, value in enumerate(family.values):
            yield PackMemory(
                key=f"{family.topic}-{number}",
                topic=family.topic,
                content=family.text.format(value=value),
                created_at=_day(80 + number),
                branch_state=family.state,
            )
        for question in family.questions:
            yield PackCase(
                query=question,
                filter_topic=family.topic,
                filter_state=None if family.single_state is BranchState.ACTIVE else family.single_state,
                positive_keys=(key,),
                category="lifecycle-state",
            )


def _origins() -> Part:
    """What the user said, among guesses about the same."""
    for topic, guess, said, question, values in corpus.ORIGINS:
        yield PackMemory(
            key=f"{topic}-said", topic=topic, content=said, created_at=_day(70), origin=Origin.USER_ASSERTED
        )
        yield PackMemory(
            key=f"{topic}-imported",
            topic=topic,
            content=f"From the old notes: {guess.format(value='silence')}",
            created_at=_day(1),
            origin=Origin.LEGACY_IMPORT,
        )
        for number, value in enumerate(values):
            content = guess.format(value=value)
            yield PackMemory(key=f"{topic}-guess-{number}", topic=topic, content=content, created_at=_day(71 + number))
        for origin, key in ((Origin.USER_ASSERTED, "said"), (Origin.LEGACY_IMPORT, "imported")):
            yield PackCase(
                query=question,
                filter_topic=topic,
                filter_origin=origin,
                positive_keys=(f"{topic}-{key}",),
                category="lifecycle-origin",
            )


def _projects(chance: random.Random) -> Part:
    """The same sentence in several topics."""
    days = chance.sample(corpus.WEEKDAYS, len(corpus.WEEKDAYS))
    for project, day in zip(corpus.PROJECTS, days, strict=True):
        content = corpus.PROJECT_TEXT.format(value=day)
        yield PackMemory(key=project, topic=project, content=content, created_at=_day(100))
        yield PackCase(
            query=corpus.PROJECT_QUESTION, filter_topic=project, positive_keys=(project,), category="filter-topic"
        )


def _off_topic() -> Part:
    """What nothing in the corpus answers."""
    for question in corpus.OFF_TOPIC:
        yield PackCase(query=question, positive_keys=(), category="off-topic")
