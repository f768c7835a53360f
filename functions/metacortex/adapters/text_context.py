"""What an embedding model is told of a text beside the text: questions name the topic and the day as often as the words."""

from metacortex.ports import Document
from metacortex.rules import DEFAULT_TOPIC, day


def context(document: Document) -> str:
    """Topic and day in one line, such as `Birds, 8 May 2023`; empty where neither is known."""
    topic = "" if document.topic == DEFAULT_TOPIC else document.topic
    return ", ".join(filter(None, (topic, "" if document.date is None else day(document.date))))


def in_context(document: Document) -> str:
    """The text with that line before it, for models that document no form of their own."""
    line = context(document)
    return f"{line}: {document.text}" if line else document.text
