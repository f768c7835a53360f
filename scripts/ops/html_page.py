"""A page of HTML that needs nothing else: its shell and style, tables, and parts of charts, for light and dark screens."""

import math
from collections.abc import Iterable, Sequence
from html import escape

WIDTH, HEIGHT = 640, 260
LEFT, BOTTOM, TOP, RIGHT = 44, 30, 16, 20
ROW = 26

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --quiet: #667080; --line: #d7dce2;
  --one: #2563a8; --two: #b4541a; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaee; --paper: #14171b; --quiet: #9aa4b2; --line: #333a43;
  --one: #7db4ee; --two: #eda36f; --bad: #f2867f; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td.figure, th.figure { text-align: right; } tr.overall td { font-weight: 600; }
svg { max-width: 100%; height: auto; } svg text { fill: var(--quiet); font-size: 12px; }
svg .grid { stroke: var(--line); } svg .one { fill: var(--one); } svg .two { fill: var(--two); }
svg .line-one { stroke: var(--one); fill: none; stroke-width: 2; }
svg .line-two { stroke: var(--two); fill: none; stroke-width: 2; }
.one-text { color: var(--one); } .two-text { color: var(--two); } .bad { color: var(--bad); }
""".strip()
# What a page tells may be somebody's: nothing in it may make a browser ask for anything.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(title: str, body: Iterable[str]) -> str:
    """The whole page. `title` is text; `body` is HTML."""
    shown = escape(title)
    content = "\n".join(body)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{shown}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n<h1>{shown}</h1>\n{content}\n</body>\n</html>\n"
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], figures: frozenset[int] = frozenset()) -> str:
    """A table of texts; the columns at the places in `figures` stand at the right."""

    def cell(tag: str, place: int, text: str) -> str:
        shade = ' class="figure"' if place in figures else ""
        return f"<{tag}{shade}>{escape(text)}</{tag}>"

    head = "".join(cell("th", place, text) for place, text in enumerate(heads))
    body = "".join(f"<tr>{''.join(cell('td', place, text) for place, text in enumerate(row))}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def svg(title: str, height: int, parts: Iterable[str]) -> str:
    content = "".join(parts)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">'
        f"<title>{escape(title)}</title>{content}</svg>"
    )


def text(x: float, y: float, shown: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(shown)}</text>'


def round_step(least: float) -> float:
    """The next of 1, 2 and 5 times a power of ten that is not below `least`."""
    power = 10 ** math.floor(math.log10(max(least, 0.01)))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)
