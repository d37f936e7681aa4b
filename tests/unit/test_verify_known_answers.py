"""The known-answer test covers every operator of the registry, passes here, and can fail."""

from __future__ import annotations

import pytest
import torch
from repro_kernels import registry

from repro_audit.verify import known_answers
from repro_audit.verify.known_answer_digests import DIGESTS


def test_every_registered_operator_has_a_case():
    names = {case.name for case in known_answers.cases()}
    calls = {name.split("/")[0] for name in names}
    assert len(names) == len(list(known_answers.cases()))
    for name, operator in registry.OPERATORS.items():
        call = operator.cpu.replace(":", ".")
        if call == "elementary.unary":
            assert f"{call}/{name}" in names, name
        else:
            assert call in calls, name


def test_every_case_has_a_committed_digest_and_no_other():
    assert [case.name for case in known_answers.cases()] == list(DIGESTS)


def test_this_machine_is_right():
    assert known_answers.failures() == []


def test_one_wrong_bit_is_named(monkeypatch: pytest.MonkeyPatch):
    right = known_answers.gemm.conv

    def wrong(*arguments: object, **named: object) -> torch.Tensor:
        result = right(*arguments, **named)  # type: ignore[arg-type]
        result.view(torch.int32).view(-1)[5] ^= 1
        return result

    monkeypatch.setattr(known_answers.gemm, "conv", wrong)
    assert known_answers.failures() == ["gemm.conv"]


def test_the_sign_of_zero_counts_and_the_payload_of_nan_does_not():
    def answer(bits: int) -> str:
        value = torch.tensor([bits - 2**32 if bits >= 2**31 else bits], dtype=torch.int32).view(torch.float32)
        return known_answers.answer(known_answers.Case("x", lambda _: value))

    assert answer(0x00000000) != answer(0x80000000)
    assert answer(0x7FC00000) == answer(0xFFC00001)
