"""Reading with bounds, and writing so that nothing half-written ever stands under its final name.

A file is written beside its final place under a temporary name, flushed to the disk, and renamed. Whatever
goes wrong on the way (disk full, Ctrl-C, an error of ours), the temporary file is removed and the old file,
if there was one, is still there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from repro_audit.errors import UntrustedError, UsageError

MANIFEST_SUFFIX = ".manifest.json"
TRACE_SUFFIX = ".trace.safetensors"
INPUTS_SUFFIX = ".inputs.json"
OWN_SUFFIXES = (MANIFEST_SUFFIX, TRACE_SUFFIX, INPUTS_SUFFIX)


def trace_path(manifest: Path) -> Path:
    """Where the trace of a manifest lies: the same folder, the same NAME.

    Raises:
        UsageError: the file is not called ``NAME.manifest.json``.
    """
    if not manifest.name.endswith(MANIFEST_SUFFIX) or manifest.name == MANIFEST_SUFFIX:
        raise UsageError(
            f"{manifest} is not called NAME{MANIFEST_SUFFIX}", hint="rename it, and its trace with it"
        )
    return manifest.with_name(manifest.name.removesuffix(MANIFEST_SUFFIX) + TRACE_SUFFIX)


@contextlib.contextmanager
def open_regular(path: Path, what: str) -> Iterator[IO[bytes]]:
    """Open a regular file for reading; a pipe, device or folder is refused without waiting for it.

    Args:
        path: the file, as the user named it (symlinks are followed).
        what: how to name it in an error, as "manifest".

    Raises:
        UsageError: missing, unreadable, or not a regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError as error:
        raise _unreadable(path, what, error) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(f"the {what} {path} is not a regular file", hint="name a file")
    with os.fdopen(descriptor, "rb") as stream:
        yield stream


def read_bounded(path: Path, limit: int, what: str) -> bytes:
    """The whole file, if it has at most ``limit`` bytes.

    Raises:
        UsageError: missing, unreadable, or not a regular file.
        UntrustedError: larger than ``limit``.
    """
    with open_regular(path, what) as stream:
        try:
            data = stream.read(limit + 1)
        except OSError as error:
            raise _unreadable(path, what, error) from None
    if len(data) > limit:
        raise UntrustedError(f"the {what} {path} has more than {limit} bytes", hint="this is no file of ours")
    return data


def _unreadable(path: Path, what: str, error: OSError) -> UsageError:
    why = error.strerror or "unknown reason"
    return UsageError(f"cannot read the {what} {path}: {why}", hint="check the path and its permissions")


def _unwritable(path: Path, error: OSError) -> UsageError:
    hint = "choose another place with -o"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "free some space, or " + hint
    return UsageError(f"cannot write {path}: {error.strerror}", hint=hint)


def require_writable(path: Path, *, overwrite: bool) -> None:
    """Check before an expensive run that ``path`` can be written at its end.

    Raises:
        UsageError: its folder is missing or not writable, it is a folder, or it exists and may not be
            replaced.
    """
    folder = path.parent
    if not folder.is_dir():
        raise UsageError(f"the output folder {folder} does not exist", hint="create it first")
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint="choose another name with -o")
    if path.exists() and not overwrite:
        raise _exists(path)
    try:
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=f".{path.name}.")
    except OSError as error:
        raise _unwritable(path, error) from None
    os.close(descriptor)
    os.unlink(name)


def _exists(path: Path) -> UsageError:
    return UsageError(f"{path} exists already", hint="choose another name with -o, or pass --overwrite")


class PendingFile:
    """A file in the making; :meth:`commit` names it, leaving the ``with`` block without that removes it.

    Args:
        path: the final name.
        overwrite: whether an existing file may be replaced.
        mode: permission bits, less the umask, given before the first byte is written.

    Raises:
        UsageError: from any method, when the operating system refuses (disk full, no permission), and from
            :meth:`commit` when the file exists and may not be replaced.
    """

    def __init__(self, path: Path, *, overwrite: bool = False, mode: int = 0o644) -> None:
        self.path = path
        self.overwrite = overwrite
        if path.exists() and not overwrite:
            raise _exists(path)
        try:
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        except OSError as error:
            raise _unwritable(path, error) from None
        self._temporary: Path | None = Path(name)
        self._stream = os.fdopen(descriptor, "wb")
        if hasattr(os, "fchmod"):
            os.fchmod(descriptor, mode & ~_umask())

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        try:
            self._stream.write(data)
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def flush(self) -> None:
        """Bring every byte to the disk and close the file; it still has its temporary name."""
        if self._stream.closed:
            return
        try:
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._stream.close()
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def commit(self) -> None:
        """Flush, then give the file its final name in one step."""
        self.flush()
        assert self._temporary is not None
        try:
            if self.overwrite:
                os.replace(self._temporary, self.path)
            else:
                _rename_new(self._temporary, self.path)
            self._temporary = None
            _sync_folder(self.path.parent)
        except FileExistsError:
            raise _exists(self.path) from None
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def __enter__(self) -> PendingFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._stream.close()
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)
            self._temporary = None


def _rename_new(source: Path, target: Path) -> None:
    """Rename, unless ``target`` exists: link() fails on an existing name where rename() would replace it."""
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        # A file system without hard links: what is left is to look first.
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        os.rename(source, target)
    else:
        os.unlink(source)


def _umask() -> int:
    # There is no way to read it without setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, data: bytes, *, overwrite: bool = False, mode: int = 0o644) -> None:
    """Write ``data`` under ``path``, whole or not at all.

    Raises:
        UsageError: it exists and may not be replaced, or the operating system refuses.
    """
    with PendingFile(path, overwrite=overwrite, mode=mode) as pending:
        pending.write(data)
        pending.commit()


def commit_together(files: Sequence[PendingFile]) -> None:
    """Give several finished files their names, the one that vouches for the others last.

    If one cannot be named, those that were new are taken away again.

    Raises:
        UsageError: as :meth:`PendingFile.commit`.
    """
    for pending in files:
        pending.flush()
    named: list[Path] = []
    try:
        for pending in files:
            new = not pending.path.exists()
            pending.commit()
            if new:
                named.append(pending.path)
    except BaseException:
        for path in named:
            path.unlink(missing_ok=True)
        raise
