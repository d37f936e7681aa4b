"""The command line in process: fast, and every byte of stdout and stderr at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from repro_audit.cli.main import run_and_exit


@dataclass(frozen=True)
class Ran:
    """One command: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str

    def refused(self, code: int, *words: str) -> None:
        """Assert the contract of every refusal: the code, one sentence on stderr with the words, no more."""
        assert self.code == code, (self.code, self.err)
        said = self.err.splitlines()
        assert len(said) == 1, self.err
        assert said[0].startswith("repro-audit: ")
        for word in words:
            assert word in said[0], (word, said[0])


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run the command line with these arguments."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: str | Path) -> Ran:
        capfd.readouterr()
        code = run_and_exit([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama in a Hugging Face folder."""
    from tests.helpers.tiny_models import tiny_folder

    return tiny_folder(tmp_path_factory.mktemp("models") / "tiny-llama", "llama")


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private key; its public half is beside it."""
    path = tmp_path_factory.mktemp("keys") / "alice.pem"
    assert run_and_exit(["keygen", str(path), "-q"]) == 0
    return path
