"""A run as one HTML page that needs nothing else: tables, and charts as inline SVG, for light and dark screens."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

from metacortex.rules import format_time
from ops.eval_metrics import Outcome, Summary, hit_at, recall_at
from ops.eval_report import OVERALL, Report, told_off_topic
from ops.eval_run import Asked
from ops.html_page import BOTTOM, HEIGHT, LEFT, ROW, TOP, WIDTH, page, round_step, svg, table, text

BINS = 16


def to_html(report: Report) -> str:
    title = f"Retrieval evaluation: {report.result.source}"
    return page(title, _body(report))


def _body(report: Report) -> Iterator[str]:
    summaries = report.summaries()
    answered = [asked.outcome for asked in report.result.asked if asked.outcome.error is None]
    looked_for = [outcome for outcome in answered if outcome.is_answerable]
    facts = {**report.searched, "cases": report.half, "began": format_time(report.began_at)}
    yield "<p>" + " · ".join(f"{escape(name)} {escape(value)}" for name, value in facts.items()) + "</p>"
    yield "<h2>Figures</h2>"
    yield _figures(summaries, report.cutoffs)
    if told := told_off_topic(report):
        yield f"<p>{escape(told)}</p>"
    if looked_for:
        yield "<h2>Found within the first k results</h2>"
        yield '<p><span class="one-text">■ hit@k</span> <span class="two-text">■ recall@k</span></p>'
        yield _curves(looked_for, report.limit)
        yield f"<h2>Recall@{report.limit} by category</h2>"
        yield _bars({name: figures.recall[report.limit] for name, figures in summaries.items()})
    if answered:
        yield "<h2>Time of a search, in milliseconds</h2>"
        yield _histogram([outcome.latency_ms for outcome in answered])
    if report.comparison:
        yield f"<h2>Worse than in the baseline: {len(report.comparison.worse)} of {report.comparison.compared}</h2>"
        yield table(("query", "how"), ((each.asked.case.query, each.says) for each in report.comparison.worse))
    missed = [asked for asked in report.result.asked if _is_missed(asked.outcome, report.limit)]
    yield f"<h2>Not everything found: {len(missed)} of {len(report.result.asked)}</h2>"
    yield table(("query", "category", "filters", "found"), map(_missed, missed))


def _is_missed(outcome: Outcome, limit: int) -> bool:
    return outcome.error is not None or (outcome.is_answerable and recall_at(outcome, limit) < 1)


def _missed(asked: Asked) -> Sequence[str]:
    outcome = asked.outcome
    places = ", ".join(map(str, outcome.ranks)) or "none"
    found = outcome.error or f"{len(outcome.ranks)} of {outcome.positives}, at {places}"
    filters = ", ".join(f"{name} {value}" for name, value in asked.case.filters.items())
    return (asked.case.query, asked.case.category, filters, found)


def _figures(summaries: Mapping[str, Summary], cutoffs: Sequence[int]) -> str:
    heads = ["cases", "errors", "empty"]
    heads += [f"{name}@{cutoff}" for name in ("hit", "recall") for cutoff in cutoffs]
    heads += ["MRR", "p50 ms", "p95 ms"]
    rows = "".join(_figures_row(name, figures) for name, figures in summaries.items())
    cells = "".join(f'<th class="figure">{head}</th>' for head in heads)
    return f'<div class="scroll"><table><tr><th>category</th>{cells}</tr>{rows}</table></div>'


def _figures_row(name: str, figures: Summary) -> str:
    shares = [*figures.hit.values(), *figures.recall.values(), figures.mrr]
    cells = [str(figures.cases), str(figures.errors), str(figures.empty)]
    cells += ["–" if share is None else f"{share:.3f}" for share in shares]
    cells += ["–" if time is None else f"{time:.0f}" for time in (figures.p50_ms, figures.p95_ms)]
    row = "".join(f'<td class="figure">{cell}</td>' for cell in cells)
    shade = ' class="overall"' if name == OVERALL else ""
    return f"<tr{shade}><td>{escape(name)}</td>{row}</tr>"


# --- Charts ---


def _curves(outcomes: Sequence[Outcome], limit: int) -> str:
    """Shares from 0 to 1 over k."""

    def x(cutoff: int) -> float:
        return LEFT + (WIDTH - LEFT - 20) * ((cutoff - 1) / max(1, limit - 1))

    def y(share: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)

    def curve(name: str, share: Callable[[Outcome, int], float]) -> str:
        shares = ((k, sum(share(each, k) for each in outcomes) / len(outcomes)) for k in range(1, limit + 1))
        points = " ".join(f"{x(k):.1f},{y(value):.1f}" for k, value in shares)
        return f'<polyline class="{name}" points="{points}"/>'

    def parts() -> Iterator[str]:
        for share in (0, 0.25, 0.5, 0.75, 1):
            yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 20}" y1="{y(share):.1f}" y2="{y(share):.1f}"/>'
            yield text(LEFT - 6, y(share) + 4, f"{share:g}", "end")
        for cutoff in range(1, limit + 1):
            yield text(x(cutoff), HEIGHT - 10, str(cutoff))
        yield curve("line-one", hit_at)
        yield curve("line-two", recall_at)

    return svg("hit and recall by cutoff", HEIGHT, parts())


def _bars(shares: Mapping[str, float | None]) -> str:
    """One horizontal bar per category."""
    left = 190

    def parts() -> Iterator[str]:
        for row, (name, share) in enumerate(shares.items()):
            width = (WIDTH - left - 60) * (share or 0)
            shade = "one" if name == OVERALL else "two"
            yield text(left - 8, row * ROW + 17, name if len(name) <= 26 else f"{name[:25]}…", "end")
            yield f'<rect class="{shade}" x="{left}" y="{row * ROW + 4}" width="{width:.1f}" height="{ROW - 8}"/>'
            yield text(left + width + 6, row * ROW + 17, "–" if share is None else f"{share:.3f}", "start")

    return svg("recall by category", len(shares) * ROW + 4, parts())


def _histogram(latencies: Sequence[float]) -> str:
    """How many searches took how long."""
    longest = max(latencies)
    step = round_step(longest / BINS)
    counts = [0] * (math.floor(longest / step) + 1)
    for latency in latencies:
        counts[math.floor(latency / step)] += 1
    width = (WIDTH - LEFT - 20) / len(counts)
    room = HEIGHT - TOP - BOTTOM

    def parts() -> Iterator[str]:
        for place, count in enumerate(counts):
            height = room * count / max(counts)
            x, y = LEFT + place * width, TOP + room - height
            yield f'<rect class="one" x="{x + 1:.1f}" y="{y:.1f}" width="{width - 2:.1f}" height="{height:.1f}"/>'
            if count:
                yield text(x + width / 2, y - 3, str(count))
            if place % max(1, len(counts) // 8) == 0:
                yield text(x, HEIGHT - 10, f"{place * step:g}")

    return svg("time of a search", HEIGHT, parts())
