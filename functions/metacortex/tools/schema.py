"""How a tool's arguments are declared and read: once, as a pydantic model whose JSON schema is what clients see."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, WithJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import ErrorDetails

from metacortex import rules
from metacortex.errors import InvalidArgument


class Arguments(BaseModel):
    """Base of every tool's arguments: strict JSON types, unknown arguments ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


A = TypeVar("A", bound=Arguments)


def _whole_number(value: object) -> object:
    """JSON knows one kind of number: 5.0 is as whole as 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole_number)
"""Goes behind the bounds of an int."""

Time = Annotated[
    int, BeforeValidator(rules.parse_time), WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}]})
]
"""Epoch milliseconds, from a number or an ISO 8601 text."""

Texts = Annotated[list[str], Field(fail_fast=True)]
"""A list of texts. The first item that is none is the one that is named: there may be half a million."""


def parse(arguments: type[A], given: Mapping[str, Any] | None) -> A:
    """The arguments a client sent, null meaning omitted. Raises InvalidArgument naming every field that is wrong."""
    sent = {name: value for name, value in (given or {}).items() if value is not None}
    try:
        return arguments.model_validate(sent)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        raise InvalidArgument("; ".join(_sentence(fault) for fault in faults[:5]) + ".") from None


def _sentence(fault: ErrorDetails) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"]).lstrip(".")
    if fault["type"] == "missing":
        return f"{place} is required"
    says = fault["msg"].removeprefix("Value error, ").rstrip(".")
    return f"{place}: {says[0].lower()}{says[1:]}"


class _Plain(GenerateJsonSchema):
    """JSON schemas as clients like them: no invented titles, nothing to resolve."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False

    def generate(self, schema: Any, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        generated = super().generate(schema, mode)
        generated.pop("title", None)
        generated.pop("description", None)
        for definition in generated.get("$defs", {}).values():
            definition.pop("title", None)
            definition.pop("description", None)
        return _inlined(generated, generated.pop("$defs", {}))


class _PlainArguments(_Plain):
    """Of arguments also without null: it means omitted, and a union with it confuses some clients."""

    def nullable_schema(self, schema: Any) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        generated = super().default_schema(schema)
        if generated.get("default", ...) is None:
            generated.pop("default")
        return generated


def _inlined(node: Any, definitions: Mapping[str, Any]) -> Any:
    """The schema with every $ref replaced by what it names: some clients resolve none."""
    if isinstance(node, list):
        return [_inlined(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    node = dict(node)
    if reference := node.pop("$ref", None):
        node = definitions[reference.rpartition("/")[2]] | node
    return {key: _inlined(value, definitions) for key, value in node.items()}


def arguments_schema(arguments: type[Arguments]) -> dict[str, Any]:
    """The inputSchema of a tool."""
    return TypeAdapter(arguments).json_schema(schema_generator=_PlainArguments)


def result_schema(shape: Any) -> dict[str, Any]:
    """The outputSchema of a tool, from the TypedDict of its result."""
    return TypeAdapter(shape).json_schema(schema_generator=_Plain)
