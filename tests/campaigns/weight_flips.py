"""The weight-flip campaign: one bit of one weight, again and again, and what the audit says each time.

Two ways for a bit to be wrong:

* *verifier*: the file that the verifier holds differs from what was recorded. The tensor must be named.
* *prover*: what really ran differs, while the manifest claims the genuine digests. No digest of a weight can
  show it; the points that consumed the weight must, and nothing else may be called an origin.

A flip that changes no recorded row (a sign of zero, an embedding row that is never read) is counted apart:
the prover's run then is the claimed computation, bit for bit, and the audit has to say REPRODUCED.

    python -m tests.campaigns.weight_flips MODEL_FOLDER [--flips 50] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from repro_audit import models
from repro_audit.cli.recording import Plan, Sampling, record
from repro_audit.engine import required_points
from repro_audit.errors import InconclusiveError
from repro_audit.manifest.keys import generate, load_private
from repro_audit.progress import NullObserver
from repro_audit.settings import Decoding, RunSettings
from repro_audit.verdict import Result, Verdict
from repro_audit.verify.verify import Options, verify

PROMPT = "The capital of France is"
NEW_TOKENS = 4
BITS = 16


@dataclass(frozen=True)
class Flip:
    """Bits of one element, those of ``mask``; ``before`` and ``after`` are the element's 16 bits."""

    tensor: str
    element: int
    mask: int
    before: int

    @property
    def after(self) -> int:
        """The element's bits with the flip."""
        return self.before ^ self.mask

    @property
    def non_finite(self) -> bool:
        """Whether the bfloat16 value becomes an infinity or a NaN."""
        return self.after & 0x7F80 == 0x7F80


@dataclass(frozen=True)
class Outcome:
    """What one flip led to: ``caught``, ``no effect``, ``refused`` or ``MISSED``."""

    flip: Flip
    side: str
    said: str
    named: str


@dataclass(frozen=True)
class _Tensor:
    start: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


def tensors_of(weights: Path) -> dict[str, _Tensor]:
    """Name -> place in a safetensors file of 16-bit tensors."""
    with weights.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    assert all(entry["dtype"] == "BF16" for entry in header.values()), "the campaign is over 16-bit weights"
    return {
        name: _Tensor(8 + length + entry["data_offsets"][0], tuple(entry["shape"]))
        for name, entry in sorted(header.items())
    }


def draw(weights: Path, count: int, seed: int) -> Iterator[Flip]:
    """``count`` flips, tensors and elements at random, the bits 0 to 15 in turn."""
    places, chance = tensors_of(weights), random.Random(seed)
    for index in range(count):
        name = chance.choice(sorted(places))
        place = places[name]
        element = chance.randrange(place.size)
        with weights.open("rb") as file:
            file.seek(place.start + 2 * element)
            (before,) = struct.unpack("<H", file.read(2))
        yield Flip(name, element, 1 << index % BITS, before)


@contextmanager
def flipped_file(weights: Path, flip: Flip) -> Iterator[None]:
    """The bit flipped in the file, and put back."""
    place = tensors_of(weights)[flip.tensor]
    try:
        _poke(weights, place.start + 2 * flip.element, flip.after)
        yield
    finally:
        _poke(weights, place.start + 2 * flip.element, flip.before)


def _poke(path: Path, offset: int, bits: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(struct.pack("<H", bits))


class Campaign:
    """One genuine record of a model folder, and flips played against it."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder, self.scratch = folder, scratch
        self.weights = folder / "model.safetensors"
        self.trusted = (generate(scratch / "key.pem"),)
        self.key = load_private(str(scratch / "key.pem"))
        self.model = models.load(str(folder))
        self.points = required_points(self.model, "ops")
        self.record("genuine")

    def record(self, name: str) -> None:
        """Record and sign what ``self.model`` computes, at level ``ops``."""
        settings = RunSettings(decoding=Decoding(NEW_TOKENS), level="ops")
        plan = Plan(
            model=str(self.folder),
            prompts=(PROMPT,),
            sampling=Sampling(NEW_TOKENS, 0.0),
            settings=settings,
            stem=self.scratch / name,
            key=self.key,
            force=True,
        )
        with mock.patch.object(models, "load", return_value=self.model):
            record(plan, NullObserver())

    def verify(self, name: str) -> Result:
        """Verify a record against the folder as it is on disk now."""
        options = Options(self.scratch / f"{name}.manifest.json", str(self.folder), self.trusted)
        return verify(options, NullObserver()).result

    def verifier(self, flip: Flip) -> Outcome:
        """The verifier's file is wrong."""
        with flipped_file(self.weights, flip):
            result = self.verify("genuine")
        named_tensors = [finding.message for finding in result.findings if finding.kind == "weights"]
        caught = result.verdict is Verdict.DIVERGED and any(flip.tensor in text for text in named_tensors)
        return Outcome(flip, "verifier", "caught" if caught else "MISSED", "; ".join(named_tensors))

    def prover(self, flip: Flip) -> Outcome:
        """What ran is wrong; the manifest claims the genuine digests."""
        parameter = self.model.module.get_parameter(flip.tensor)
        bits = parameter.data.view(torch.int16).reshape(-1)
        signed = np.array([flip.before, flip.after], dtype=np.uint16).view(np.int16)
        try:
            bits[flip.element] = int(signed[1])
            self.record("forged")
        except InconclusiveError as refusal:
            # An overflow: such a run cannot be recorded, so nothing can be claimed of it.
            stopped = flip.non_finite or "non-finite" in refusal.message
            return Outcome(flip, "prover", "refused" if stopped else "MISSED", str(refusal))
        finally:
            bits[flip.element] = int(signed[0])
        result = self.verify("forged")
        origins = sorted({f.point or "" for f in result.findings if f.kind in ("origin", "cache")})
        if result.verdict is Verdict.REPRODUCED and not origins:
            return Outcome(flip, "prover", "no effect", "")
        groups = [group for group in self.model.tied if flip.tensor in group]
        aliases = {flip.tensor}.union(*groups)
        consumers = {point.name for point in self.points if aliases.intersection(point.weights)}
        right = result.verdict is Verdict.DIVERGED and bool(origins) and consumers.issuperset(origins)
        return Outcome(flip, "prover", "caught" if right else "MISSED", ", ".join(origins))


def run_campaign(folder: Path, count: int, seed: int, observer: NullObserver | None = None) -> list[Outcome]:
    """Play ``count`` flips on both sides."""
    outcomes = []
    with tempfile.TemporaryDirectory() as scratch:
        campaign = Campaign(folder, Path(scratch))
        for flip in draw(campaign.weights, count, seed):
            for outcome in (campaign.verifier(flip), campaign.prover(flip)):
                outcomes.append(outcome)
                if observer is not None:
                    observer.note(describe(outcome))
    return outcomes


def describe(outcome: Outcome) -> str:
    """One line of the campaign's table."""
    flip = outcome.flip
    bit = flip.mask.bit_length() - 1
    where = f"{flip.tensor}[{flip.element}] bit {bit:2} {flip.before:04x}->{flip.after:04x}"
    return f"{outcome.side:8} {outcome.said:9} {where}: {outcome.named}"


def summary(outcomes: list[Outcome]) -> str:
    """Counts per side."""
    lines = []
    for side in ("verifier", "prover"):
        said = [outcome.said for outcome in outcomes if outcome.side == side]
        lines.append(f"{side}: " + ", ".join(f"{word} {said.count(word)}" for word in sorted(set(said))))
    return "\n".join(lines)


class _Printer(NullObserver):
    def note(self, text: str) -> None:
        print(text, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--flips", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(summary(run_campaign(arguments.folder, arguments.flips, arguments.seed, _Printer())))
