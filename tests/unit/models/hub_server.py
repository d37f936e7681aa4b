"""A loopback server that speaks as much of the hub's protocol as fetching a model takes.

``GET /api/models/ORG/NAME[/revision/REV]`` tells commit and files; ``/api/.../tree/COMMIT`` lists them with
their hashes; ``HEAD`` and ``GET /ORG/NAME/resolve/REV/FILE`` give the file with ETag, commit and size, for
``*.safetensors`` as large-file storage does: a redirect whose own headers state the SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass
class Hub:
    """A running server.

    Attributes:
        endpoint: for HF_ENDPOINT.
        requests: ``METHOD path`` of everything asked so far.
        revisions: repository -> revision name -> commit.
        corrupt: names of files that are sent with one byte changed.
    """

    endpoint: str = ""
    requests: list[str] = field(default_factory=list)
    revisions: dict[str, dict[str, str]] = field(default_factory=dict)
    folders: dict[tuple[str, str], Path] = field(default_factory=dict)
    corrupt: set[str] = field(default_factory=set)

    def add(self, repo: str, commit: str, folder: Path, *names: str) -> None:
        """Serve ``folder`` as ``repo`` at ``commit``, also under the revision ``names``."""
        self.folders[repo, commit] = folder
        self.revisions.setdefault(repo, {}).update(dict.fromkeys((*names, commit), commit))


@contextmanager
def serve() -> Iterator[Hub]:
    """A hub on a free port of the loopback interface, for the duration of a block."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            self._api("/".join(parts[2:4]), parts[4:], body=body)
        elif parts[0] == "storage":
            folder = self.hub.folders["/".join(parts[1:3]), parts[3]]
            self._file(folder / parts[4], {}, body=body)
        elif len(parts) >= 5 and parts[2] == "resolve":
            self._resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]), body=body)
        else:
            self._send(404, b"{}", {}, body=body)

    def _commit(self, repo: str, revision: str, *, body: bool) -> str | None:
        if repo not in self.hub.revisions:
            self._send(404, b'{"error":"x"}', {"X-Error-Code": "RepoNotFound"}, body=body)
            return None
        commit = self.hub.revisions[repo].get(revision)
        if commit is None:
            self._send(404, b'{"error":"x"}', {"X-Error-Code": "RevisionNotFound"}, body=body)
        return commit

    def _api(self, repo: str, rest: list[str], *, body: bool) -> None:
        revision = rest[1] if len(rest) >= 2 and rest[0] in ("revision", "tree") else "main"
        commit = self._commit(repo, revision, body=body)
        if commit is None:
            return
        folder = self.hub.folders[repo, commit]
        files = sorted(item for item in folder.iterdir() if item.is_file())
        answer: Any = {"id": repo, "modelId": repo, "sha": commit, "private": False, "gated": False}
        answer["siblings"] = [{"rfilename": item.name} for item in files]
        if rest and rest[0] == "tree":
            answer = [self._entry(item) for item in files]
        self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"}, body=body)

    @staticmethod
    def _entry(file: Path) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "type": "file",
            "path": file.name,
            "size": file.stat().st_size,
            "oid": "0" * 40,
        }
        if file.suffix == ".safetensors":
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            entry["lfs"] = {"oid": digest, "size": entry["size"], "pointerSize": 134}
        return entry

    def _resolve(self, repo: str, revision: str, name: str, *, body: bool) -> None:
        commit = self._commit(repo, revision, body=body)
        if commit is None:
            return
        file = self.hub.folders[repo, commit] / name
        headers = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if not file.is_file():
            self._send(404, b"{}", {**headers, "X-Error-Code": "EntryNotFound"}, body=body)
            return
        data = file.read_bytes()
        if file.suffix == ".safetensors":
            digest = hashlib.sha256(data).hexdigest()
            headers |= {"X-Linked-ETag": f'"{digest}"', "X-Linked-Size": str(len(data))}
            # Another host name, as the hub's own storage has: huggingface_hub follows a redirect only then.
            storage = self.hub.endpoint.replace("127.0.0.1", "localhost")
            headers["Location"] = f"{storage}/storage/{repo}/{commit}/{name}"
            self._send(302, b"", headers, body=body)
            return
        headers["ETag"] = f'"{hashlib.sha1(data, usedforsecurity=False).hexdigest()}"'
        self._file(file, headers, body=body)

    def _file(self, file: Path, headers: dict[str, str], *, body: bool) -> None:
        data = file.read_bytes()
        if file.name in self.hub.corrupt:
            data = data[:-1] + bytes([data[-1] ^ 1])
        headers.setdefault("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        status = 200
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes="):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            end = min(int(last), len(data) - 1) if last else len(data) - 1
            headers["Content-Range"] = f"bytes {first}-{end}/{len(data)}"
            data, status = data[int(first) : end + 1], 206
        self._send(status, data, headers, body=body)

    def _send(self, status: int, data: bytes, headers: dict[str, str], *, body: bool) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)
