"""Runs a model under a profile: operator dispatch, coverage, batching, key-value cache, generation, replay.

Imports PyTorch and transformers; everything that works without them stays out of here.
"""

from repro_audit.engine.generate import Replay, Request, record, replay
from repro_audit.engine.points import required_points

__all__ = ["Replay", "Request", "record", "replay", "required_points"]
