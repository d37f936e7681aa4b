"""Settings: flag > REPRO_AUDIT_* > file > default; unknown keys are refused."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from repro_audit.errors import UsageError

ENV_PREFIX = "REPRO_AUDIT_"
_MAX_BYTES = 1 << 20


def env_name(option: str) -> str:
    """The environment variable of ``--some-option``."""
    return ENV_PREFIX + option.lstrip("-").replace("-", "_").upper()


def load_config(path: Path, command: str, known: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The file's values for one command, by parameter name.

    The file is a YAML mapping. A top-level key is an option name without its dashes and applies to every
    command that has the option; a mapping under a command's name applies to that command alone and wins.

    Args:
        path: the file.
        command: the command that runs.
        known: command -> option name without dashes -> parameter name.

    Raises:
        UsageError: unreadable, not YAML, not a mapping, an unknown key, or a key that works as a flag only.
    """
    tree = _read(path)
    everywhere = set().union(*(options.keys() for options in known.values()))
    values: dict[str, Any] = {}
    for key, value in tree.items():
        if key in known:
            continue
        name = _known_key(path, str(key), everywhere, "")
        if name in known[command]:
            values[known[command][name]] = _plain(path, name, value)
    for section, inner in tree.items():
        if section not in known:
            continue
        if not isinstance(inner, dict):
            raise UsageError(
                f"{path}: {section} is not a mapping of options", hint="write option: value under it"
            )
        for key, value in inner.items():
            name = _known_key(path, str(key), set(known[section]), f" of {section}")
            if section == command:
                values[known[section][name]] = _plain(path, name, value)
    return values


def unknown_environment(known: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Variables that look like ours and are none: a misspelling should not go unnoticed."""
    options = {env_name(option) for per_command in known.values() for option in per_command}
    return sorted(name for name in os.environ if name.startswith(ENV_PREFIX) and name not in options)


def _read(path: Path) -> dict[Any, Any]:
    import yaml

    from repro_audit.manifest.files import open_regular

    try:
        with open_regular(path, "configuration") as stream:
            raw = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", hint="name a readable file after -c"
        ) from error
    if len(raw) > _MAX_BYTES:
        raise UsageError(f"{path} is larger than 1 MiB", hint="a configuration is a short YAML mapping")
    try:
        tree = yaml.safe_load(raw)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not YAML", hint="write lines of option: value") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise UsageError(f"{path} is not a mapping", hint="write lines of option: value")
    return tree


def _known_key(path: Path, key: str, names: set[str], where: str) -> str:
    name = key.replace("_", "-")
    if name.startswith("insecure"):
        raise UsageError(f"{path}: {key} works as a flag only", hint=f"pass --{name} on the command line")
    if name not in names:
        near = get_close_matches(name, sorted(names), n=1)
        hint = f"did you mean {near[0]}" if near else f"known keys: {', '.join(sorted(names))}"
        raise UsageError(f"{path}: {key!r} is not an option{where}", hint=hint)
    return name


def _plain(path: Path, name: str, value: Any) -> Any:
    if "\0" in str(value):
        raise UsageError(f"{path}: {name} holds a NUL character", hint="write option: value")
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        return [str(item) for item in value]
    if isinstance(value, str | int | float) and value is not None:
        return value
    raise UsageError(f"{path}: {name} is neither a value nor a list of values", hint="write option: value")
