"""A result as JSON (schema ``result.schema.json``): for machines, and to render again later."""

from __future__ import annotations

import json
from typing import Any

from repro_audit.verdict import Finding, Result, Verdict

FORMAT = "repro-audit-result/1"


def to_dict(result: Result) -> dict[str, Any]:
    """The result as plain JSON types; every key is always present."""
    return {
        "format": FORMAT,
        "command": result.command,
        "verdict": result.verdict.value,
        "exitCode": result.verdict.exit_code,
        "summary": result.summary,
        "findings": [_finding(finding) for finding in result.findings],
        "facts": [{"name": name, "value": value} for name, value in result.facts],
        "counts": dict(result.counts),
        "matrix": [{"sequence": name, "rows": list(rows)} for name, rows in result.matrix],
        "nextCommand": result.next_command,
    }


def from_dict(tree: dict[str, Any]) -> Result:
    """The result that :func:`to_dict` made; the input must already conform to the schema."""
    return Result(
        command=tree["command"],
        verdict=Verdict(tree["verdict"]),
        summary=tree["summary"],
        findings=tuple(
            Finding(
                code=item["code"],
                message=item["message"],
                kind=item["kind"],
                point=item["point"],
                sequence=item["sequence"],
                position=item["position"],
                details=tuple(item["details"].items()),
            )
            for item in tree["findings"]
        ),
        facts=tuple((item["name"], item["value"]) for item in tree["facts"]),
        counts=tuple(tree["counts"].items()),
        matrix=tuple((item["sequence"], tuple(item["rows"])) for item in tree["matrix"]),
        next_command=tree["nextCommand"],
    )


def render(result: Result) -> str:
    """The result as an indented JSON document with a final newline."""
    return json.dumps(to_dict(result), indent=2, ensure_ascii=True) + "\n"


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "kind": finding.kind,
        "message": finding.message,
        "point": finding.point,
        "sequence": finding.sequence,
        "position": finding.position,
        "details": dict(finding.details),
    }
