"""Record the golden manifests again: ``python manifests/record_golden.py DEVICE`` (needs the ``demo`` extra).

DEVICE is ``cpu`` or ``cuda``; each records its own part of the list below, into ``golden/fp32``.

They freeze the bits of a profile, so this is for a new profile version or a new format, in a commit of its
own that says why. Signed by a key that is made for the occasion: the public half is written to
``keys/golden-DEVICE.pub.pem``, the private half never leaves the process.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from repro_audit import models
from repro_audit.cli.recording import Plan, Sampling, record_loaded
from repro_audit.devices import resolve
from repro_audit.manifest.keys import SigningKey, public_pem, trusted
from repro_audit.models.loaded import LoadedModel
from repro_audit.progress import NullObserver
from repro_audit.settings import Decoding, RunSettings

MODEL: Final = "demo:smollm2-135m"
FOLDER: Final = Path(__file__).resolve().parent
MIXTURE: Final = "python:golden_models:mixture"
ENCODER: Final = "python:golden_models:encoder"

PARAGRAPH: Final = (
    "The order in which numbers are added decides the last bits of a sum. A library may choose another "
    "order for another batch, another processor or another release, and nobody is told. A specification "
    "of the order takes that choice away: whoever follows it gets the same bits, and whoever gets other "
    "bits has not followed it. So a recorded answer can be computed again by anyone who holds the "
    "weights, on hardware that did not exist when it was written, and compared to the last bit. What "
    "differs is found at the first place where it differs, not guessed from the end. This paragraph is "
    "longer than one segment of one hundred and twenty-eight keys, so that the attention over it crosses "
    "a boundary. What a careful reader should remember of it is this:"
)


@dataclass(frozen=True)
class Golden:
    """One recording.

    Attributes:
        name: file name below ``golden/fp32``.
        device: ``cpu`` or ``cuda``: where it is recorded; it is verified on the other kind.
        model: what runs.
        prompts: one per sequence.
        sampling: how tokens are drawn.
        level: what is recorded; coarse where the text is long, so that files stay small.
        activations: the activation type.
        freezes: what it holds in place.
    """

    name: str
    device: str
    model: str
    prompts: tuple[str, ...]
    sampling: Sampling
    level: str
    activations: str
    freezes: str


GOLDEN: Final = (
    Golden(
        "greedy",
        "cuda",
        MODEL,
        ("The capital of France is", "Once upon a time"),
        Sampling(max_new_tokens=12, temperature=0.0),
        "layers",
        "fp32",
        "every layer of every token of two greedy answers",
    ),
    Golden(
        "sampled",
        "cuda",
        MODEL,
        (PARAGRAPH,),
        Sampling(max_new_tokens=16, temperature=0.8, top_k=50, top_p=0.95, seed=20261201),
        "logits",
        "fp32",
        "the sampler, and attention over more than one segment of keys",
    ),
    Golden(
        "bf16",
        "cuda",
        MODEL,
        ("The capital of France is",),
        Sampling(max_new_tokens=8, temperature=0.0),
        "logits",
        "bf16",
        "the roundings of --activations bf16",
    ),
    Golden(
        "mixture",
        "cuda",
        MIXTURE,
        (),
        Sampling(max_new_tokens=0),
        "ops",
        "fp32",
        "routing, ties of experts, sums over experts, the operators of a model that nothing fuses",
    ),
    Golden(
        "encoder",
        "cuda",
        ENCODER,
        (),
        Sampling(max_new_tokens=0),
        "ops",
        "fp32",
        "bidirectional attention, padding, layer norm, gelu",
    ),
    Golden(
        "greedy-cpu",
        "cpu",
        MODEL,
        ("The capital of France is", "Once upon a time"),
        Sampling(max_new_tokens=12, temperature=0.0),
        "layers",
        "fp32",
        "the same as greedy, from the other side",
    ),
)


def key_of(device: str) -> Path:
    """The public key of the recordings made on a kind of device."""
    return FOLDER / "keys" / f"golden-{device}.pub.pem"


def record(golden: Golden, model: LoadedModel, key: SigningKey, folder: Path) -> Path:
    """Record one golden manifest and its trace below ``folder``; the path of the manifest."""
    stem = folder / "fp32" / golden.name
    stem.parent.mkdir(parents=True, exist_ok=True)
    settings = RunSettings(
        Decoding(golden.sampling.max_new_tokens),
        activations=golden.activations,
        level=golden.level,
        device=resolve(golden.device),
    )
    plan = Plan(golden.model, golden.prompts, golden.sampling, settings, stem, key=key, force=True)
    return record_loaded(plan, model, NullObserver()).manifest


def main(device: str, folder: Path = FOLDER) -> int:
    """Write every golden manifest that is recorded on ``device``, and the public key, below ``folder``."""
    private = Ed25519PrivateKey.generate()
    key = SigningKey(private, trusted(private.public_key(), key_of(device).name))
    loaded: dict[str, LoadedModel] = {}
    for golden in (golden for golden in GOLDEN if golden.device == device):
        if golden.model not in loaded:
            loaded[golden.model] = models.load(golden.model, observer=NullObserver())
        print(record(golden, loaded[golden.model], key, folder / "golden").relative_to(folder))
    public = folder / key_of(device).relative_to(FOLDER)
    public.parent.mkdir(parents=True, exist_ok=True)
    public.write_bytes(public_pem(private.public_key()))
    print(public.relative_to(folder))
    return 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in ("cpu", "cuda"):
        sys.exit("usage: python manifests/record_golden.py cpu|cuda [FOLDER]")
    sys.exit(main(sys.argv[1], *map(Path, sys.argv[2:])))
