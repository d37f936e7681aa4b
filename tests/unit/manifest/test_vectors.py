"""Every conformance vector has its verdict, and the vectors are what the sources make."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from manifests import regenerate
from repro_audit.errors import InconclusiveError, UntrustedError
from repro_audit.manifest.keys import TrustedKey, load_public
from repro_audit.manifest.parse import parse_manifest
from repro_audit.verify.check import check, manifest_schema
from repro_audit.verify.explain import CODES

MANIFESTS = Path(regenerate.__file__).parent
VECTORS = MANIFESTS / "vectors"
EXPECTED: dict[str, dict[str, str]] = json.loads((VECTORS / "expected.json").read_text())


@pytest.fixture(scope="module")
def runner() -> TrustedKey:
    return load_public(str(MANIFESTS / "keys" / "runner.pub"))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_verdict(name: str, runner: TrustedKey) -> None:
    expected = EXPECTED[name]
    result = check([VECTORS / f"{name}.manifest.json"], [runner])
    assert result.verdict.value == expected["verdict"]
    first = result.findings[0] if result.findings else None
    assert (first.code if first else "") == expected["code"]
    assert expected["says"] in (first.message if first else "")
    if first is not None:
        assert first.code in CODES
        assert first.message.isprintable(), "a hostile name must not reach the terminal"


def test_vectors_are_regenerated_to_the_byte() -> None:
    files = regenerate.build()
    here = {p.relative_to(MANIFESTS).as_posix() for p in VECTORS.rglob("*") if p.is_file()}
    assert here == {name for name in files if name.startswith("vectors/")}
    for name, data in files.items():
        assert (MANIFESTS / name).read_bytes() == data, name


def test_there_are_negative_vectors_of_every_class() -> None:
    classes = [name.split("/")[0] for name in EXPECTED]
    assert {c: v["verdict"] for c, v in zip(classes, EXPECTED.values(), strict=True)} == {
        "valid": "VALID",
        "invalid": "UNTRUSTED",
        "untrusted": "UNTRUSTED",
        "inconclusive": "INCONCLUSIVE",
    }
    assert sum(c != "valid" for c in classes) >= 25


def _payload(name: str) -> bytes:
    return base64.b64decode(json.loads((VECTORS / f"{name}.manifest.json").read_bytes())["payload"])


@pytest.mark.parametrize("name", [n for n in sorted(EXPECTED) if n.startswith("valid/")])
def test_schema_accepts_what_the_reader_accepts(name: str) -> None:
    payload = _payload(name)
    parse_manifest(payload)
    Draft202012Validator.check_schema(manifest_schema())
    Draft202012Validator(manifest_schema()).validate(json.loads(payload))


@pytest.mark.parametrize(
    "name",
    [
        "missing-key",
        "unknown-key",
        "oversized-count",
        "count-is-text",
        "count-is-bool",
        "seed-is-number",
        "float-spelling",
        "negative-temperature",
        "upper-case-hex",
        "short-digest",
        "bad-time",
        "unknown-level",
        "unknown-domain",
        "unknown-dtype",
        "control-characters",
        "long-name",
        "zero-sequences",
        "zero-points",
        "path-traversal",
        "absolute-path",
        "windows-path",
        "url-name",
        "private-text",
        "statement-type",
        "predicate-type",
    ],
)
def test_schema_refuses_what_the_reader_refuses(name: str) -> None:
    errors = list(
        Draft202012Validator(manifest_schema()).iter_errors(json.loads(_payload(f"invalid/{name}")))
    )
    # "0x1p-1" is a double in another spelling, which a pattern cannot know.
    assert errors or name == "float-spelling"


@pytest.mark.parametrize("name", ["format-v2"])
def test_a_later_format_is_inconclusive_not_malformed(name: str) -> None:
    with pytest.raises(InconclusiveError, match="install the version"):
        parse_manifest(_payload(f"inconclusive/{name}"))


def test_oversized_files_are_refused_before_they_are_parsed(tmp_path: Path, runner: TrustedKey) -> None:
    big = tmp_path / "big.manifest.json"
    with big.open("wb") as stream:
        stream.truncate(64 * 1024 * 1024)
    result = check([big], [runner])
    assert result.verdict.value == "UNTRUSTED"
    assert "more than" in result.findings[0].message


def test_an_oversized_payload_is_refused() -> None:
    with pytest.raises(UntrustedError, match="more than the 16777216 allowed"):
        parse_manifest(b'"' + b"x" * (16 * 1024 * 1024) + b'"')


def test_a_name_is_never_a_path_that_gets_opened(
    monkeypatch: Any, tmp_path: Path, runner: TrustedKey
) -> None:
    """check opens the manifest and the trace beside it, and nothing else, whatever the manifest says."""
    from repro_audit.manifest import files

    for suffix in ("manifest.json", "trace.safetensors"):
        (tmp_path / f"plain.{suffix}").write_bytes((VECTORS / f"valid/plain.{suffix}").read_bytes())
    opened: list[str] = []
    real = files.os.open

    def spy(path: Any, *args: Any, **kwargs: Any) -> int:
        opened.append(str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(files.os, "open", spy)
    check([tmp_path / "plain.manifest.json"], [runner])
    assert {Path(path).name for path in opened} == {"plain.manifest.json", "plain.trace.safetensors"}
