"""``repro-audit schema``: the JSON Schemas that ship with the tool."""

from __future__ import annotations

import sys
from importlib import resources
from typing import Annotated

import typer

from repro_audit.cli.app import Common, command
from repro_audit.cli.output import write_text
from repro_audit.errors import UsageError
from repro_audit.verdict import Result

_SUFFIX = ".schema.json"


def names() -> list[str]:
    """Names of the shipped schemas."""
    folder = resources.files("repro_audit.schemas")
    return sorted(item.name.removesuffix(_SUFFIX) for item in folder.iterdir() if item.name.endswith(_SUFFIX))


@command("schema")
def schema(
    common: Common,
    name: Annotated[
        str | None, typer.Argument(help="Which one; without it, the list.", show_default=False)
    ] = None,
) -> Result | None:
    """Print a JSON Schema: of the manifest, of results, and of the other files."""
    if name is None:
        text = "".join(f"{item}\n" for item in names())
    elif name not in names():
        raise UsageError(f"schema {name!r} does not exist", hint=f"choose one of {', '.join(names())}")
    else:
        text = (resources.files("repro_audit.schemas") / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
    if common.outputs.path is not None:
        write_text(common.outputs.path, text, force=common.outputs.force)
    else:
        sys.stdout.write(text)
    return None
