"""Dispatch from a parsed MODEL to the code that loads its kind."""

from __future__ import annotations

from repro_audit.models import spec as kinds
from repro_audit.models.loaded import LoadedModel
from repro_audit.models.spec import ModelSpec
from repro_audit.progress import Observer


def load_spec(spec: ModelSpec, *, online: bool, cast_weights: bool, observer: Observer) -> LoadedModel:
    """Load a parsed MODEL; arguments and errors as :func:`repro_audit.models.load`."""
    if spec.kind == kinds.PYTHON:
        from repro_audit.models.python_factory import load_python

        return load_python(spec, observer=observer)
    if spec.kind == kinds.HUB:
        from repro_audit.models.hub import load_hub

        return load_hub(spec, online=online, cast_weights=cast_weights, observer=observer)
    if spec.kind == kinds.FOLDER:
        from repro_audit.models.hf import load_folder

        assert spec.path is not None
        return load_folder(spec.path, spec.name, observer=observer, cast_weights=cast_weights)
    from repro_audit.models.gguf_model import load_gguf

    return load_gguf(spec, observer=observer)
