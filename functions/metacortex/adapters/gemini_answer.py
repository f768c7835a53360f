"""What Gemini wrote, if it is whole: a text that was cut off, refused or left out must never pass for one."""

from typing import TYPE_CHECKING

from metacortex.errors import ModelFailed

if TYPE_CHECKING:
    from google.genai.types import GenerateContentResponse


def whole_text(answer: "GenerateContentResponse", *, refused: str, cut_off: str, empty: str) -> str:
    """The trimmed text of a complete answer; raises ModelFailed with the sentence for what it is instead."""
    from google.genai.types import FinishReason

    [candidate, *_] = answer.candidates or [None]
    if candidate is None:
        raise ModelFailed(refused)
    if candidate.finish_reason is FinishReason.MAX_TOKENS:
        raise ModelFailed(cut_off)
    if candidate.finish_reason is not FinishReason.STOP:
        raise ModelFailed(refused)
    text = (answer.text or "").strip()
    if not text:
        raise ModelFailed(empty)
    return text
