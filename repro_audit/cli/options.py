"""Options that several commands share, and what they resolve to."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from repro_audit.cli.app import Common, flag_only, option
from repro_audit.errors import UsageError
from repro_audit.settings import PROFILES

if TYPE_CHECKING:
    from repro_audit.manifest.keys import SigningKey, TrustedKey

#: Names that the design knows and this version does not have.
_LATER_PROFILES = ("exact", "exact-hi", "stock")
_MAX_PROMPT_BYTES = 64 << 20
#: Largest number that a manifest holds for a count.
LARGEST = 2**31 - 1

Device = Annotated[
    str, option("--device", metavar="DEVICE", help="auto, cpu, cuda or cuda:N; never changes a bit.")
]
Threads = Annotated[int | None, option("--threads", metavar="N", help="Threads; never changes a bit.", min=1)]
Online = Annotated[bool, option("--online", help="May download from the hub.")]
TrustedKeys = Annotated[
    list[str], option("--trusted-key", metavar="PUB", help="Public key (PEM) that may vouch; repeatable.")
]
Key = Annotated[str | None, option("--key", metavar="FILE|env:VAR", help="Private key (PEM) to sign with.")]
Passphrase = Annotated[
    str | None, option("--passphrase-file", metavar="FILE", help="File that holds the key's passphrase.")
]
Untrusted = Annotated[
    bool, flag_only("--insecure-allow-untrusted", help="Compare bits although nobody trusted vouches.")
]
Trace = Annotated[
    str | None, option("--trace", metavar="FILE", help="Trace file; without it, the one beside the manifest.")
]
Inputs = Annotated[
    str | None, option("--inputs", metavar="FILE", help="The inputs of a --private-inputs run.")
]
Challenge = Annotated[
    str | None, option("--challenge", metavar="HEX", help="A verifier's nonce, 8 to 64 bytes.")
]
ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Folder, org/name@revision, file.gguf, python:module:factory or demo:smollm2-135m.",
        show_default=False,
    ),
]


def known_device(device: str) -> str:
    """A device by its form alone; whether it is here is asked when it is needed, since that takes torch.

    Raises:
        UsageError: no such device name.
    """
    if re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,3})?", device) is None:
        raise UsageError(f"device {device!r} does not exist", hint="choose auto, cpu, cuda or cuda:N")
    return device


def resolve_device(device: str) -> str:
    """The device that will be used, ``cpu`` or ``cuda:N``: :func:`repro_audit.devices.resolve`."""
    if device == "cpu":
        return device
    from repro_audit.devices import resolve

    return resolve(device)


def resolve_profile(profile: str) -> str:
    """The profile, refused by name where this version does not have it."""
    if profile in PROFILES:
        return profile
    exists = f"this version has {', '.join(PROFILES)}"
    if profile in _LATER_PROFILES:
        raise UsageError(f"profile {profile} is not available yet", hint=exists)
    raise UsageError(f"profile {profile!r} does not exist", hint=exists)


def set_threads(threads: int | None) -> None:
    """Set the size of torch's pool, which the kernels share."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def read_prompts(prompt: str | None, prompts: str | None) -> list[str]:
    """The prompts, one per sequence.

    Args:
        prompt: the text itself.
        prompts: a UTF-8 file with one prompt a line, or ``-`` for stdin.

    Raises:
        UsageError: none or both given, unreadable, not UTF-8, too large, or an empty prompt.
    """
    if (prompt is None) == (prompts is None):
        raise UsageError("give one of --prompt TEXT and --prompts FILE", hint="--prompts - reads stdin")
    if prompt is not None:
        found = [prompt]
    else:
        found = _read_text(str(prompts)).splitlines()
    if not found:
        raise UsageError(f"{_place(prompts)} holds no prompt", hint="write one prompt a line")
    for number, text in enumerate(found, 1):
        if not text:
            where = "the prompt" if prompt is not None else f"line {number} of {_place(prompts)}"
            raise UsageError(f"{where} is empty", hint="there is nothing to record without a token")
    return found


def _place(prompts: str | None) -> str:
    return "stdin" if prompts == "-" else str(prompts)


def _read_text(source: str) -> str:
    if source == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed", hint="pipe the prompts in, or name a file")
        raw = sys.stdin.buffer.read(_MAX_PROMPT_BYTES + 1)
    else:
        try:
            with Path(source).open("rb") as file:
                raw = file.read(_MAX_PROMPT_BYTES + 1)
        except OSError as error:
            raise UsageError(
                f"cannot read {source}: {error.strerror}", hint="name a readable file"
            ) from error
    if len(raw) > _MAX_PROMPT_BYTES:
        raise UsageError(f"{_place(source)} is larger than 64 MiB", hint="split it into several runs")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{_place(source)} is not UTF-8", hint="convert it first") from None


def signing_key(source: str, passphrase_file: str | None, common: Common) -> SigningKey:
    """The private key, its warnings said."""
    from repro_audit.manifest import keys

    passphrase = keys.read_passphrase(Path(passphrase_file)) if passphrase_file else None
    key = keys.load_private(source, passphrase=passphrase)
    for warning in key.warnings:
        common.say(f"warning: {warning}")
    return key


def trusted_keys(sources: list[str]) -> tuple[TrustedKey, ...]:
    """The public keys that may vouch."""
    from repro_audit.manifest import keys

    return tuple(keys.load_public(source) for source in sources)
