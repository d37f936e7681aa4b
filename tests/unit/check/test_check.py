"""check over several manifests: the worst verdict, one finding each, nothing raised but usage errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from manifests import regenerate, synthetic
from repro_audit.errors import UsageError
from repro_audit.manifest.dsse import seal
from repro_audit.verdict import Verdict
from repro_audit.verify import check as module
from repro_audit.verify.check import check
from repro_audit.verify.explain import CODES

VECTORS = Path(regenerate.__file__).parent / "vectors"
RUNNER = regenerate.RUNNER.public


def _vector(name: str) -> Path:
    return VECTORS / f"{name}.manifest.json"


@pytest.mark.parametrize(
    ("names", "verdict"),
    [
        (["valid/plain", "valid/private"], Verdict.VALID),
        (["valid/plain", "inconclusive/profile-unknown"], Verdict.INCONCLUSIVE),
        (["inconclusive/profile-unknown", "invalid/run-root", "valid/plain"], Verdict.UNTRUSTED),
        (["valid/plain", "untrusted/unsigned"], Verdict.UNTRUSTED),
    ],
)
def test_the_worst_verdict_stands_for_all(names: list[str], verdict: Verdict) -> None:
    result = check([_vector(name) for name in names], [RUNNER])
    assert result.verdict is verdict
    assert dict(result.counts) == {"manifests": len(names), "valid": sum(n[:6] == "valid/" for n in names)}
    if verdict is not Verdict.VALID:
        assert result.findings[0].kind != "note"
        guilty = next(n for n in names if not n.startswith("valid/"))
        assert result.summary.split(":")[0] in {f"{n.split('/')[1]}.manifest.json" for n in names}
        assert guilty


def test_valid_never_claims_more_than_it_knows() -> None:
    result = check([_vector("valid/plain")], [RUNNER])
    assert "nothing was computed again" in result.summary
    assert ("trust", "signed by runner.pub") in result.facts
    assert "REPRODUCED" not in str(result)


def test_waived_trust_is_said_and_an_invalid_signature_is_not_waived() -> None:
    waived = check([_vector("untrusted/unsigned")], [RUNNER], allow_untrusted=True)
    assert waived.verdict is Verdict.VALID
    assert "nobody trusted vouches" in waived.summary
    assert waived.findings[0].code == "RA103"
    assert ("trust", "none: unsigned") in waived.facts
    forged = check([_vector("untrusted/payload-swapped")], [RUNNER], allow_untrusted=True)
    assert forged.verdict is Verdict.UNTRUSTED and forged.findings[0].code == "RA102"


def test_missing_files_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        check([tmp_path / "x.manifest.json"], [RUNNER])


def test_any_file_name_does_without_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "renamed.json"
    path.write_bytes(_vector("valid/plain").read_bytes())
    result = check([path], [RUNNER])
    assert result.verdict is Verdict.VALID
    assert [finding.code for finding in result.findings] == ["RA203"]


def test_saved_values_of_a_single_row_count(tmp_path: Path) -> None:
    run = synthetic.make(values=True)
    run.record.values["s1/model.layers.1.k_cache"][2, 1, 0] *= -1
    payload, trace = run.write()
    (tmp_path / "x.manifest.json").write_bytes(seal(payload, regenerate.RUNNER))
    (tmp_path / "x.trace.safetensors").write_bytes(trace)
    (finding,) = check([tmp_path / "x.manifest.json"], [RUNNER]).findings
    assert "k_cache: the saved values do not give the recorded rows" in finding.message


def test_every_code_is_explained() -> None:
    folder = Path(module.__file__).parent
    for name in ("check", "diff", "show", "comparable"):
        for code in re.findall(r'"(RA\d{3})"', (folder / f"{name}.py").read_text()):
            assert code in CODES, f"{name}.py uses {code}"
