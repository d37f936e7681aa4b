"""Nothing half-written ever stands under its final name."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from repro_audit.errors import UntrustedError, UsageError
from repro_audit.manifest import files
from repro_audit.manifest.files import (
    PendingFile,
    commit_together,
    read_bounded,
    require_writable,
    write_file,
)


def _full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_written_whole_with_its_mode(tmp_path: Path) -> None:
    write_file(tmp_path / "a", b"one", mode=0o600)
    assert (tmp_path / "a").read_bytes() == b"one"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_existing_files_stay_unless_told_otherwise(tmp_path: Path) -> None:
    write_file(tmp_path / "a", b"one")
    with pytest.raises(UsageError, match="exists already"):
        write_file(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"one"
    write_file(tmp_path / "a", b"two", overwrite=True)
    assert (tmp_path / "a").read_bytes() == b"two"


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    with PendingFile(tmp_path / "a") as pending:
        pending.write(b"ours")
        (tmp_path / "a").write_bytes(b"theirs")
        with pytest.raises(UsageError, match="exists already"):
            pending.commit()
    assert (tmp_path / "a").read_bytes() == b"theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_file_systems_without_hard_links(tmp_path: Path, monkeypatch: Any) -> None:
    def unsupported(*_: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(files.os, "link", unsupported)
    write_file(tmp_path / "a", b"one")
    with PendingFile(tmp_path / "b") as pending:
        pending.write(b"ours")
        (tmp_path / "b").write_bytes(b"theirs")
        with pytest.raises(UsageError, match="exists already"):
            pending.commit()
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a": b"one", "b": b"theirs"}


def test_the_umask_is_respected(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "a", b"prompts")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


@pytest.mark.parametrize("overwrite", [False, True])
def test_disk_full_leaves_nothing_and_keeps_the_old_file(
    tmp_path: Path, monkeypatch: Any, overwrite: bool
) -> None:
    if overwrite:
        (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr(files.os, "fsync", _full)
    with pytest.raises(UsageError, match=r"cannot write .*No space left.*free some space"):
        write_file(tmp_path / "a", b"new", overwrite=overwrite)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == ({"a": b"old"} if overwrite else {})


def test_interruption_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), PendingFile(tmp_path / "a") as pending:
        pending.write(b"half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_several_files_get_their_names_together_or_not_at_all(tmp_path: Path) -> None:
    with PendingFile(tmp_path / "trace") as trace, PendingFile(tmp_path / "manifest") as manifest:
        trace.write(b"t")
        manifest.write(b"m")
        (tmp_path / "manifest").write_bytes(b"theirs")
        with pytest.raises(UsageError):
            commit_together([trace, manifest])
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"manifest": b"theirs"}


def test_the_output_is_checked_before_the_work(tmp_path: Path, monkeypatch: Any) -> None:
    require_writable(tmp_path / "a", overwrite=False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="does not exist; create it"):
        require_writable(tmp_path / "missing" / "a", overwrite=False)
    with pytest.raises(UsageError, match="is a folder"):
        require_writable(tmp_path, overwrite=True)
    (tmp_path / "a").touch()
    require_writable(tmp_path / "a", overwrite=True)
    with pytest.raises(UsageError, match="exists already"):
        require_writable(tmp_path / "a", overwrite=False)

    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(files.tempfile, "mkstemp", denied)
    with pytest.raises(UsageError, match="Permission denied"):
        require_writable(tmp_path / "b", overwrite=False)


def test_reading_is_bounded_and_waits_for_no_pipe(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bounded(tmp_path / "a", 5, "file") == b"12345"
    with pytest.raises(UntrustedError, match="more than 4 bytes"):
        read_bounded(tmp_path / "a", 4, "file")
    with pytest.raises(UsageError, match="No such file"):
        read_bounded(tmp_path / "b", 4, "file")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a regular file"):
        read_bounded(tmp_path / "pipe", 4, "file")
    with pytest.raises(UsageError, match="not a regular file"):
        read_bounded(Path("/dev/zero"), 4, "file")


def test_the_trace_lies_beside_its_manifest(tmp_path: Path) -> None:
    assert files.trace_path(tmp_path / "x.manifest.json") == tmp_path / "x.trace.safetensors"
    for name in ("x.json", ".manifest.json"):
        with pytest.raises(UsageError, match="is not called"):
            files.trace_path(tmp_path / name)
