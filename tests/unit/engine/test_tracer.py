"""What a tensor derives from, through writes and views, and not from memory that another tensor once had."""

from __future__ import annotations

import torch

from repro_audit import engine
from repro_audit.engine.tracer import MetaProbe, Tracer
from tests.helpers.engine_runs import tiny


class Probe(MetaProbe):
    """Traces real tensors, whose memory is used again."""


def test_a_write_shows_in_every_view_of_the_storage() -> None:
    tracer = Tracer()
    with Probe(tracer):
        point, target = torch.ones(4), torch.zeros(8)
        tracer.declare(point, [(0, False)])
        view = target[2:6]
        view.add_(point)
        assert tracer.sources(target) == tracer.sources(target[0]) == {(0, False)}
        assert tracer.sources(torch.zeros(8)) == frozenset()


def test_memory_that_was_written_to_before_says_nothing() -> None:
    tracer = Tracer()
    with Probe(tracer):
        point = torch.ones(64)
        tracer.declare(point, [(0, False)])
        for _ in range(200):
            scratch = torch.zeros(64)
            scratch.add_(point)
            del scratch
            assert tracer.sources(torch.zeros(64)) == frozenset()


def test_points_of_a_mixture_of_experts_are_the_same_each_time() -> None:
    """Its probe runs on values and writes in place."""
    model = tiny("mixtral")
    first = engine.required_points(model, "ops")
    for _ in range(10):
        held = [torch.zeros(size) for size in range(1, 200)]
        del held[::2]
        assert engine.required_points(model, "ops") == first
