"""The two largest logits in a trace: in order, of the vocabulary, and what a greedy draw took."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from manifests import synthetic
from repro_audit.manifest.dsse import seal
from repro_audit.verdict import Result, Verdict
from repro_audit.verify.check import check

RUNNER = synthetic.test_key("runner")


def checked(run: synthetic.Run, folder: Path) -> Result:
    """What ``check`` says of a run that is written down and signed."""
    payload, trace = run.write()
    path = folder / "x.manifest.json"
    path.write_bytes(seal(payload, RUNNER))
    path.with_name("x.trace.safetensors").write_bytes(trace)
    return check([path], [RUNNER.public])


def test_an_honest_run(tmp_path: Path) -> None:
    assert checked(synthetic.make(), tmp_path).verdict is Verdict.VALID


@pytest.mark.parametrize("case", ["swapped", "one token twice", "equal, higher id first", "outside", "nan"])
def test_logits_that_are_no_top_two(case: str, tmp_path: Path) -> None:
    run = synthetic.make(temperature=1.0)  # sampled: the token drawn need not be the largest
    rows = run.record.sequences[1].top2
    assert rows is not None
    if case == "swapped":
        rows[0] = rows[0, ::-1].copy()
    elif case == "one token twice":
        rows[0, 1] = rows[0, 0]
    elif case == "equal, higher id first":
        rows[0] = [[3, 0x3F800000], [2, 0x3F800000]]
    elif case == "outside":
        rows[0, 1, 0] = synthetic.VOCABULARY
    else:
        rows[0, 0, 1] = np.uint32(0x7FC00000)
    result = checked(run, tmp_path)
    assert result.verdict is Verdict.UNTRUSTED
    assert "two largest logits of sequence 1" in result.findings[0].message


def test_equal_logits_with_the_lowest_id_first(tmp_path: Path) -> None:
    run = synthetic.make(temperature=1.0)
    rows = run.record.sequences[1].top2
    assert rows is not None
    rows[0] = [[2, 0x3F800000], [3, 0x3F800000]]
    assert checked(run, tmp_path).verdict is Verdict.VALID


def test_a_greedy_token_that_is_not_the_largest(tmp_path: Path) -> None:
    run = synthetic.make()
    rows = run.record.sequences[0].top2
    assert rows is not None
    rows[0, :, 0] = [1, 2]
    result = checked(run, tmp_path)
    assert result.verdict is Verdict.UNTRUSTED
    assert "greedily where the largest logit is that of 1" in result.findings[0].message
