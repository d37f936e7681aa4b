"""``python -m tests.mutations.server``: pytest again and again, each time in a fork with libraries loaded.

Importing PyTorch and transformers takes longer than most of the tests. This process imports them once, and
nothing of what is tested; every run is a child that starts from there, in the copy. It reads a JSON object a
line, pytest's arguments and where its words go, and answers each with the child's exit status.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys

LIBRARIES = (
    *("torch", "transformers", "transformers.modeling_utils", "transformers.masking_utils"),
    *("transformers.models.llama.modeling_llama", "transformers.models.qwen2.modeling_qwen2"),
    *(
        "numpy",
        "hypothesis.strategies",
        "mpmath",
        "jsonschema",
        "safetensors.torch",
        "tokenizers",
        "typer",
        "rich",
    ),
    *("cryptography.hazmat.primitives.serialization", "securesystemslib.signer", "blake3", "pytest"),
)


def main() -> None:
    """Serve until the input ends."""
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    answers = os.dup(1)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run(json.loads(line))
        _, status = os.waitpid(child, 0)
        os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _run(request: dict[str, object]) -> None:
    """The child: pytest, with all that it says going to a file."""
    said = os.open(str(request["said"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (said, 1), (said, 2)):
        os.dup2(source, target)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  (for the child's whole life)
    import pytest

    arguments = request["arguments"]
    assert isinstance(arguments, list)
    code = int(pytest.main(arguments))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
