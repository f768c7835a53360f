"""Memories merged by a plain rule: the newest first, and of the older ones what no newer one says already.

Where a text is not surely at the end of a sentence, it is not cut: a piece that is too long is kept once too often, while
one that is too short could be lost with its meaning.
"""

import re
from collections.abc import Iterator, Sequence

from metacortex.adapters.merge_order import oldest_first
from metacortex.memory import Memory

HEADING = "Merged by rule, newest first, without a model:"

# A line with the indented lines below it: a list entry with its parts, a block of code. Cut apart they mean nothing.
_NEXT_BLOCK = re.compile(r"\n(?![ \t]+\S)")
# What ends a sentence: East Asian marks by themselves, but not before a closing quote, after which a sentence may go on; the
# others, and all marks behind which quotes or brackets close, together with the space after them.
_CLOSING = r"[”’»」』）)\]\"']"
_END = re.compile(
    rf"[。！？｡]++(?!{_CLOSING})\s*+"
    rf"|(?<![.!?…؟।。！？｡])[.!?…؟।。！？｡]++{_CLOSING}*+\s++"
)
# Before a full stop: a single letter, as in «e.g.» and «J.», the number of a list entry, and what is often abbreviated.
_ABBREVIATION = re.compile(
    r"(?:^\s*\d+|(?<!\w)(?:[^\W\d_]|approx|bzw|ca|cf|co|corp|dr|etc|fig|inc|ltd|mr|mrs|ms|no|nr|prof|st|usw|vs"
    r"|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec))$",
    re.IGNORECASE,
)
_LONGEST_ABBREVIATION = 8


def merged_by_rule(sources: Sequence[Memory]) -> str:
    """The heading, and below it each memory that says something new."""
    said = {_key(HEADING)}
    texts = [HEADING]
    for memory in reversed(oldest_first(sources)):
        blocks = [_units(block) for block in _NEXT_BLOCK.split(memory.content)]
        if text := _unsaid(blocks, said):
            texts.append(text)
        said |= {_key(unit) for block in blocks for unit in block}
    return "\n\n".join(texts)


def _unsaid(blocks: list[list[str]], said: set[str]) -> str:
    """What is new in a memory, in its own lines. Marks such as a closing bracket stay with the lines that stay."""
    if all(_key(unit) in said or not unit.strip() for block in blocks for unit in block):
        return ""
    lines: list[str] = []
    for block in blocks:
        kept = "".join(unit for unit in block if _key(unit) not in said or not _has_words(unit)).rstrip()
        if kept or not "".join(block).strip():
            lines.append(kept)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def _units(block: str) -> list[str]:
    """What is kept or left out as one: the sentences of a line, or a line with its indented lines. They join to the block."""
    return [block] if "\n" in block else list(_sentences(block))


def _sentences(line: str) -> Iterator[str]:
    start = 0
    for end in _END.finditer(line):
        if _is_end(line, end):
            yield line[start : end.end()]
            start = end.end()
    if start < len(line):
        yield line[start:]


def _is_end(line: str, end: re.Match[str]) -> bool:
    if line[end.end() : end.end() + 1].islower():
        return False
    window = max(0, end.start() - _LONGEST_ABBREVIATION)
    return not (end[0].startswith(".") and _ABBREVIATION.search(line, window, end.start()))


def _key(unit: str) -> str:
    """What two sentences share that say the same: the text. In code and names, case and the spacing inside it have a meaning."""
    return unit.strip()


def _has_words(unit: str) -> bool:
    return any(character.isalnum() for character in unit)
