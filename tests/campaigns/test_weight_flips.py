"""The weight-flip campaign on a tiny model: 50 flips on either side, none missed."""

from __future__ import annotations

from pathlib import Path

from tests.campaigns.weight_flips import describe, run_campaign
from tests.helpers.tiny_models import tiny_folder


def test_no_flip_is_missed(tmp_path: Path) -> None:
    outcomes = run_campaign(tiny_folder(tmp_path / "model"), count=50, seed=20)
    missed = [describe(outcome) for outcome in outcomes if outcome.said == "MISSED"]
    assert not missed, "\n".join(missed)
    assert len(outcomes) == 100
    assert sum(outcome.said == "caught" for outcome in outcomes if outcome.side == "prover") >= 25


def test_tied_weights_name_every_consumer(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model", tie_word_embeddings=True)
    outcomes = run_campaign(folder, count=32, seed=3)
    missed = [describe(outcome) for outcome in outcomes if outcome.said == "MISSED"]
    assert not missed, "\n".join(missed)
