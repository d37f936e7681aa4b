"""Runs a model under a profile: operator dispatch, coverage, batching, key-value cache, generation, replay.

Imports PyTorch and transformers; everything that works without them stays out of here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from repro_audit.engine.generate import Replay, Request, record, replay
from repro_audit.engine.modulepoints import module_plan
from repro_audit.engine.points import plan
from repro_audit.engine.score import score_module
from repro_audit.trace.record import Point

if TYPE_CHECKING:
    from repro_audit.models.loaded import LoadedModel

__all__ = ["Replay", "Request", "record", "replay", "required_points", "score_module"]


def required_points(model: LoadedModel, level: str) -> tuple[Point, ...]:
    """The points that a run of ``model`` at ``level`` records, derived from the model alone.

    Raises:
        InconclusiveError: a model whose points cannot be derived.
    """
    if model.kind == "python":
        return module_plan(model.module, model.example_inputs or {}, level).points
    return plan(model.module, level).points
