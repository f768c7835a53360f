"""A benchmark as one HTML page: the tables of the report, and charts of what is easier seen than read."""

from collections.abc import Iterator, Sequence
from html import escape

from metacortex.rules import format_time
from ops.bench_memory import MemoryUse
from ops.bench_overhead import Overhead
from ops.bench_report import Report, Section, is_figures, sections
from ops.html_page import BOTTOM, HEIGHT, LEFT, RIGHT, ROW, TOP, WIDTH, page, round_step, svg, table, text

NAMES = 190
FIGURES = 90


def to_html(report: Report) -> str:
    return page("Benchmark of MetaCortex", _body(report))


def _body(report: Report) -> Iterator[str]:
    facts = {"began": format_time(report.began_at), **report.machine}
    yield "<p>" + " · ".join(f"{escape(name)} {escape(value)}" for name, value in facts.items()) + "</p>"
    if report.first_error:
        yield f'<p class="bad">{escape(report.first_error)}</p>'
    for section in sections(report):
        yield from _section(section)
    if report.results.load:
        yield "<h2>What a call is made of, one caller, milliseconds</h2>"
        yield '<p><span class="two-text">■ the floor</span> <span class="one-text">■ our own</span></p>'
        yield _bars([figure for figure in report.results.load if figure.service.callers == 1])
    if report.results.memory:
        yield "<h2>Resident memory over the calls, MiB</h2>"
        yield _line(report.results.memory)


def _section(section: Section) -> Iterator[str]:
    yield f"<h2>{escape(section.title)}</h2>"
    columns = enumerate(zip(*section.rows, strict=True))
    yield table(section.heads, section.rows, frozenset(place for place, cells in columns if is_figures(cells)))
    if section.note:
        yield f"<p>{escape(section.note)}</p>"


def _bars(figures: Sequence[Overhead]) -> str:
    """One bar for each call: its floor, and what lies above it."""
    scale = (WIDTH - NAMES - FIGURES) / max(max(figure.service.p50, figure.floor.p50) for figure in figures)

    def parts() -> Iterator[str]:
        for row, figure in enumerate(figures):
            floor, own = figure.floor.p50 * scale, max(0.0, figure.own_ms) * scale
            y = row * ROW
            yield text(NAMES - 8, y + 17, figure.call, "end")
            yield f'<rect class="two" x="{NAMES}" y="{y + 4}" width="{floor:.1f}" height="{ROW - 8}"/>'
            yield f'<rect class="one" x="{NAMES + floor:.1f}" y="{y + 4}" width="{own:.1f}" height="{ROW - 8}"/>'
            yield text(NAMES + floor + own + 6, y + 17, f"{figure.floor.p50:.1f} + {figure.own_ms:.1f}", "start")

    return svg("what a call is made of", len(figures) * ROW + 4, parts())


def _line(memory: MemoryUse) -> str:
    """Memory over the calls, from zero: growth that matters is seen at that scale."""
    values = memory.resident_mb
    step = round_step(max(values) / 4)
    top = step * 5

    def x(place: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * place / (len(values) - 1)

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)

    def parts() -> Iterator[str]:
        for number in range(6):
            height = y(number * step)
            yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>'
            yield text(LEFT - 6, height + 4, f"{number * step:g}", "end")
        calls = len(memory.calls.latencies)
        for place in (0, len(values) // 2, len(values) - 1):
            yield text(x(place), HEIGHT - 10, f"{calls * place // (len(values) - 1):,}")
        points = " ".join(f"{x(place):.1f},{y(value):.1f}" for place, value in enumerate(values))
        yield f'<polyline class="line-one" points="{points}"/>'

    return svg("resident memory", HEIGHT, parts())
