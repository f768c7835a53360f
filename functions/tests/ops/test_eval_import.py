"""Production cases out of what clients did: they search and fetch, the service tells its telemetry, `eval import` reads it."""

from pathlib import Path
from typing import Any

import pytest
from google.cloud.firestore_v1.async_client import AsyncClient

from builders import FakeClock, Service, environment
from evaluation import Evaluation, use_the_loop_of_the_test
from metacortex.bootstrap import Stores
from metacortex.events import now_ms
from ops.eval_cases import Case, CaseStore
from ops.eval_plan import Partition

DAY = 24.0


@pytest.fixture
async def evaluation(project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Evaluation:
    use_the_loop_of_the_test(monkeypatch)
    return Evaluation(project, tmp_path)


class Ticking(FakeClock):
    """Moves by a tenth of a second whenever somebody looks."""

    def __call__(self) -> int:
        self.now += 100
        return self.now


@pytest.fixture
def service(firestore_stores: Stores) -> Service:
    """The service with telemetry, two hours ago."""
    settings = environment(RETRIEVAL_EVENT_LOGGING_ENABLED="true")
    clock = Ticking(now_ms() - 2 * 60 * 60_000)
    return Service(settings=settings, stores=firestore_stores, clock=clock)


async def imported(evaluation: Evaluation, firestore: AsyncClient, *arguments: str, hours: float = DAY) -> list[Case]:
    """The production cases there are after an import."""
    await evaluation("import", "--lookback-hours", str(hours), *arguments)
    cases = await CaseStore(firestore).read(Partition.PRODUCTION)
    return list(cases.cases) if cases else []


async def saved(service: Service, *degrees: int, **fields: Any) -> list[str]:
    """The ids of memories at these degrees."""
    return [(await service.save(f"Memory at {each}", "default", **fields))["id"] for each in degrees]


async def test_a_fetch_after_a_search_says_that_the_result_was_right(
    service: Service, firestore: AsyncClient, evaluation: Evaluation
) -> None:
    right, _ = await saved(service, 10, 20)
    await service.search("what is at 11")
    await service.fetch(right)
    [found] = await imported(evaluation, firestore)
    assert found == Case(query="what is at 11", positive_ids=(right,), category="production", state=found.state)
    assert found.filters == {"filter_state": "active"}


async def test_all_filters_are_kept(service: Service, firestore: AsyncClient, evaluation: Evaluation) -> None:
    [right] = await saved(service, 10, topic="Owls", branch_state="merged", origin="user_asserted")
    filters = {"filter_topic": "Owls", "filter_state": "merged", "filter_origin": "user_asserted"}
    await service.search("at 10", "default", **filters, valid_at="2026-05-01T00:00:00Z")
    await service.call("fetch_context", "default", document_id=right)
    [found] = await imported(evaluation, firestore)
    assert found.filters == {**filters, "valid_at": 1_777_593_600_000}


async def test_several_fetches_after_one_search_are_several_answers_of_one_case(
    service: Service, firestore: AsyncClient, evaluation: Evaluation
) -> None:
    ids = await saved(service, 10, 20, 30)
    await service.search("at 11")
    for memory_id in (ids[2], ids[0], ids[2]):
        await service.fetch(memory_id)
    [found] = await imported(evaluation, firestore)
    assert found.positive_ids == (ids[2], ids[0])


async def test_the_same_search_at_another_time_or_by_another_client_is_the_same_case(
    service: Service, firestore: AsyncClient, evaluation: Evaluation
) -> None:
    ids = await saved(service, 10, 20)
    for profile, memory_id in (("agent", ids[0]), ("reader", ids[1])):
        await service.search("at 11", profile)
        await service.fetch(memory_id, profile)
        service.clock.advance(minutes=40)
    [found] = await imported(evaluation, firestore)
    assert found.positive_ids == tuple(ids)


async def test_the_most_recent_search_that_found_it_counts(
    service: Service, firestore: AsyncClient, evaluation: Evaluation
) -> None:
    ids = await saved(service, 10, 20)
    await service.search("first at 11")
    service.clock.advance(minutes=1)
    await service.search("second at 11")
    service.clock.advance(minutes=1)
    await service.search("at 19", limit=1)
    service.clock.advance(minutes=1)
    await service.fetch(ids[0])
    [found] = await imported(evaluation, firestore)
    assert found.query == "second at 11"


@pytest.mark.parametrize(("minutes", "count"), [(29.99, 1), (30.01, 0)])
async def test_a_search_half_an_hour_before_is_the_earliest_that_counts(
    service: Service, firestore: AsyncClient, evaluation: Evaluation, minutes: float, count: int
) -> None:
    [right] = await saved(service, 10)
    await service.search("at 11")
    service.clock.advance(minutes=minutes)
    await service.fetch(right)
    assert len(await imported(evaluation, firestore)) == count


async def test_what_another_client_searched_or_what_was_not_found_says_nothing(
    service: Service, firestore: AsyncClient, evaluation: Evaluation
) -> None:
    near, far = await saved(service, 10, 80)
    await service.search("at 11", "reader")
    await service.fetch(near)
    await service.search("at 11", limit=1)
    await service.fetch(far)
    assert await imported(evaluation, firestore) == []


async def test_a_search_before_the_window_may_explain_a_fetch_within_it(
    service: Service, firestore: AsyncClient, evaluation: Evaluation
) -> None:
    ids = await saved(service, 10, 20)
    await service.search("at 11")
    await service.fetch(ids[1])
    service.clock.advance(minutes=20)
    await service.fetch(ids[0])
    # The window begins between the two fetches.
    [found] = await imported(evaluation, firestore, hours=110 / 60)
    assert found.positive_ids == (ids[0],)


async def test_events_of_another_collection_are_passed_over(
    service: Service, firestore: AsyncClient, evaluation: Evaluation
) -> None:
    [right] = await saved(service, 10)
    await service.search("at 11")
    await service.fetch(right)
    async for snapshot in firestore.collection("retrieval_query_events").stream():
        await snapshot.reference.update({"collection": "another"})
    assert await imported(evaluation, firestore) == []
    async for snapshot in firestore.collection("retrieval_query_events").stream():
        await snapshot.reference.update({"collection": "memory_vectors"})
    assert len(await imported(evaluation, firestore)) == 1


async def test_importing_again_writes_nothing_and_later_fetches_are_added(
    service: Service, firestore: AsyncClient, evaluation: Evaluation
) -> None:
    ids = await saved(service, 10, 20)
    await service.search("at 11")
    await service.fetch(ids[0])
    first = await imported(evaluation, firestore)
    named = firestore.collection("retrieval_eval_cases_meta").document("production")
    before = (await named.get()).update_time
    assert await imported(evaluation, firestore) == first
    assert (await named.get()).update_time == before
    await service.fetch(ids[1])
    await service.search("other at 21")
    await service.fetch(ids[1])
    again = await imported(evaluation, firestore)
    assert [each.positive_ids for each in again] == [tuple(ids), (ids[1],)]
    result = await evaluation("import", "--lookback-hours", "24")
    assert result.stdout.splitlines() == [
        "5 events hold 3 fetches that a search led to.",
        "There are 2 production cases now, 0 of them new.",
    ]


async def test_cases_whose_events_have_expired_stay_unless_they_are_made_anew(
    service: Service, firestore: AsyncClient, evaluation: Evaluation
) -> None:
    [right] = await saved(service, 10)
    await service.search("at 11")
    await service.fetch(right)
    assert len(await imported(evaluation, firestore)) == 1
    assert len(await imported(evaluation, firestore, hours=0.1)) == 1
    assert await imported(evaluation, firestore, "--anew", hours=0.1) == []
