"""A JSON Schema compiled to closures: yes or no, much faster than a validator that collects errors.

A manifest may have a hundred thousand strings, each with a pattern, and ``jsonschema`` takes a good part of a
millisecond for each. Only the keywords that our own schemas use are known; a test holds the answers to those
of ``jsonschema``, which also words the refusal when the answer is no.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]

_TYPES: dict[str, Check] = {
    "array": lambda value: isinstance(value, list),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "string": lambda value: isinstance(value, str),
}
_SILENT = {"$schema", "$id", "$defs", "title", "description", "then", "else", "prefixItems"}


def compiled(schema: Mapping[str, Any]) -> Check:
    """The predicate of a schema.

    Args:
        schema: a whole schema, whose references are ``#/$defs/NAME``, none of them to itself.

    Raises:
        ValueError: a keyword that is not known here.
    """
    return _compile(schema, schema)


def _compile(schema: Mapping[str, Any] | bool, root: Mapping[str, Any]) -> Check:
    if isinstance(schema, bool):
        return lambda _: schema
    checks: list[Check] = []
    for keyword, value in schema.items():
        if keyword in _SILENT:
            continue
        if keyword == "$ref":
            checks.append(_compile(root["$defs"][value.removeprefix("#/$defs/")], root))
        elif keyword in _KEYWORDS:
            checks.append(_KEYWORDS[keyword](value, schema, root))
        else:
            raise ValueError(f"the keyword {keyword} is not known")
    if len(checks) == 1:
        return checks[0]
    return lambda instance: all(check(instance) for check in checks)


def _type(value: str, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Check:
    return _TYPES[value]


def _among(value: list[Any]) -> Check:
    # As JSON has it, true is not 1.
    known = {(type(item), item) for item in value}
    return lambda instance: isinstance(instance, str | int) and (type(instance), instance) in known


def _pattern(value: str, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Check:
    search = re.compile(value).search
    return lambda instance: not isinstance(instance, str) or search(instance) is not None


def _bound(of: type, measure: Callable[[Any], int], sign: int) -> Callable[..., Check]:
    def keyword(value: int, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Check:
        return lambda instance: not isinstance(instance, of) or sign * (measure(instance) - value) >= 0

    return keyword


def _properties(value: Mapping[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any]) -> Check:
    inner = [(name, _compile(item, root)) for name, item in value.items()]

    def check(instance: Any) -> bool:
        if not isinstance(instance, dict):
            return True
        return all(name not in instance or test(instance[name]) for name, test in inner)

    return check


def _no_others(value: bool, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Check:
    if value is not False:
        raise ValueError("additionalProperties is known as false alone")
    known = schema.get("properties", {}).keys()
    return lambda instance: not isinstance(instance, dict) or instance.keys() <= known


def _required(value: list[str], schema: Mapping[str, Any], root: Mapping[str, Any]) -> Check:
    names = frozenset(value)
    return lambda instance: not isinstance(instance, dict) or names <= instance.keys()


def _items(value: Mapping[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any]) -> Check:
    heads = [_compile(item, root) for item in schema.get("prefixItems", ())]
    rest = _compile(value, root)

    def check(instance: Any) -> bool:
        if not isinstance(instance, list):
            return True
        first = all(head(item) for head, item in zip(heads, instance, strict=False))
        return first and all(rest(item) for item in instance[len(heads) :])

    return check


def _if(value: Mapping[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any]) -> Check:
    test = _compile(value, root)
    yes, no = (_compile(schema.get(name, {}), root) for name in ("then", "else"))
    return lambda instance: yes(instance) if test(instance) else no(instance)


def _not(value: Mapping[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any]) -> Check:
    test = _compile(value, root)
    return lambda instance: not test(instance)


_KEYWORDS: dict[str, Callable[..., Check]] = {
    "type": _type,
    "const": lambda value, schema, root: _among([value]),
    "enum": lambda value, schema, root: _among(value),
    "pattern": _pattern,
    "minLength": _bound(str, len, 1),
    "maxLength": _bound(str, len, -1),
    "minItems": _bound(list, len, 1),
    "maxItems": _bound(list, len, -1),
    "minimum": _bound(int, int, 1),
    "maximum": _bound(int, int, -1),
    "properties": _properties,
    "additionalProperties": _no_others,
    "required": _required,
    "items": _items,
    "if": _if,
    "not": _not,
}
