"""Asking every case, one after the other, and what came of each."""

import time
from dataclasses import dataclass

from google.cloud.firestore_v1.async_client import AsyncClient

from ops.eval_cases import Case, CaseSet, CaseStore
from ops.eval_isolated import IsolatedCollection
from ops.eval_metrics import Outcome, ranks
from ops.eval_plan import Half, Partition, Plan
from ops.eval_search import Search, SearchFailed, in_process, over_mcp
from ops.processes import OpsError
from ops.progress import Tell
from ops.smoke_plan import Plan as Connection


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A case and what came of it."""

    case: Case
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class Result:
    """A run: what its cases were made from, and what came of each."""

    source: str
    asked: tuple[Asked, ...]


async def run_isolated(plan: Plan, client: AsyncClient, half: Half, limit: int, tell: Tell) -> Result:
    """Raises OpsError where the isolated corpus is not whole, or not the one that the cases are about."""
    cases = await CaseStore(client).read(Partition.ISOLATED)
    collection = IsolatedCollection(client, plan.settings.memory_collection, live=plan.live_collection)
    corpus = await collection.corpus()
    is_whole = corpus is not None and corpus.is_whole and await collection.holds(corpus)
    if cases is None or corpus is None or not is_whole or corpus.run != cases.corpus:
        raise OpsError(
            f"{collection.name} in {plan.project} holds no whole corpus that the isolated cases are about; make one with"
            " `./scripts/metacortex eval generate`, or `eval load PACK.json`."
        )
    return await _run(cases, half, limit, in_process(plan), tell)


async def run_production(client: AsyncClient, connection: Connection, half: Half, limit: int, tell: Tell) -> Result:
    """Raises OpsError where there are no production cases, or the service cannot be reached."""
    cases = await CaseStore(client).read(Partition.PRODUCTION)
    if cases is None:
        raise OpsError("There are no production cases yet; make some with `./scripts/metacortex eval import`.")
    async with over_mcp(connection) as search:
        return await _run(cases, half, limit, search, tell)


async def _run(cases: CaseSet, half: Half, limit: int, search: Search, tell: Tell) -> Result:
    chosen = half.of(cases.cases)
    if not chosen:
        raise OpsError(f"There are no {half} cases of {cases.source}.")
    # The first search loads a model or wakes an instance up, which is nothing the others are to be compared with.
    await _outcome(chosen[0], limit, search)
    asked: list[Asked] = []
    for case in chosen:
        asked.append(Asked(case=case, outcome=await _outcome(case, limit, search)))
        tell("Asking cases", len(asked), len(chosen))
    return Result(source=cases.source, asked=tuple(asked))


async def _outcome(case: Case, limit: int, search: Search) -> Outcome:
    positives = len(case.positive_ids)
    began = time.perf_counter()
    try:
        found = await search(case, limit)
    except SearchFailed as error:
        return Outcome(positives=positives, error=str(error))
    latency_ms = round((time.perf_counter() - began) * 1000, 1)
    return Outcome(
        positives=positives,
        ranks=ranks([each.id for each in found], case.positive_ids),
        results=len(found),
        best_score=max((each.score for each in found), default=0.0),
        latency_ms=latency_ms,
    )
