"""The part of the model hub's interface that the hub's own client fetches checkpoints by, on this machine.

Repositories are folders; a revision is one of their states. As on the hub, large files are named by their SHA-256 and
the others by their git hash, files come by ranges, and a repository may be gated, or for those who hold a token alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from urllib.parse import unquote

MAIN = "main"
_LARGE = (".safetensors", ".bin", ".onnx")
_CHUNK = 64 * 1024


@dataclass
class Repository:
    revisions: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """By branch or tag, each file's content."""
    gated: bool = False
    token: str = ""
    """What a reader has to show; a gated repository is listed for all."""

    @staticmethod
    def of(folder: Path, **changes: bytes | None) -> dict[str, bytes]:
        """A state: the files of a folder, with some changed or (None) left out."""
        files = {each.relative_to(folder).as_posix(): each.read_bytes() for each in folder.rglob("*") if each.is_file()}
        return {name: content for name, content in (files | changes).items() if content is not None}

    def commit(self, revision: str) -> str | None:
        """Of a branch, a tag or itself."""
        by_name = {name: _commit(files) for name, files in self.revisions.items()}
        return by_name.get(revision) or (revision if revision in by_name.values() else None)

    def files(self, commit: str) -> Mapping[str, bytes]:
        return next(files for files in self.revisions.values() if _commit(files) == commit)


class Hub:
    def __init__(self, url: str) -> None:
        self.url = url
        self.repositories: dict[str, Repository] = {}
        self.requests: Counter[str] = Counter()
        """By method and path."""
        self.tokens: set[str] = set()
        """That were shown."""
        self.sent = 0
        """Bytes of files."""
        self.breaks_off_after: int | None = None
        """So many bytes of files are sent in all; then every connection is cut, and none is let in any more."""
        self.goes_on = Event()
        """While it is not set, no file goes any further."""
        self.goes_on.set()
        self.begun = Event()
        """Once any file is on its way."""
        self.lock = Lock()

    @property
    def asked(self) -> int:
        return self.requests.total()

    def fetched(self, name: str) -> int:
        """How often a file was fetched."""
        return sum(count for path, count in self.requests.items() if path.startswith("GET ") and path.endswith(name))


@contextmanager
def running() -> Iterator[Hub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    hub = Hub(f"http://127.0.0.1:{server.server_address[1]}")
    _Handler.hubs[server] = hub
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.goes_on.set()
        server.shutdown()
        server.server_close()
        thread.join()
        del _Handler.hubs[server]


class _Refused(Exception):
    def __init__(self, status: int, code: str) -> None:
        self.status, self.code = status, code


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hubs: dict[object, Hub] = {}  # noqa: RUF012 - of all servers, since each makes its handlers by itself

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        pass

    @property
    def _hub(self) -> Hub:
        return self.hubs[self.server]

    def _answer(self) -> None:
        path = unquote(self.path.partition("?")[0])
        with self._hub.lock:
            self._hub.requests[f"{self.command} {path}"] += 1
        if self._hub.breaks_off_after is not None and self._hub.sent >= self._hub.breaks_off_after:
            self.close_connection = True
            return
        if shown := self.headers.get("Authorization"):
            self._hub.tokens.add(shown.removeprefix("Bearer "))
        try:
            if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/([^/]+)", path):
                self._info(*found.groups())
            elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", path):
                self._tree(*found.groups())
            elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                self._file(*found.groups())
            else:
                raise _Refused(404, "RepoNotFound")
        except _Refused as refused:
            self._send(refused.status, b"", {"X-Error-Code": refused.code, "X-Error-Message": refused.code})

    def _repository(self, name: str, revision: str) -> tuple[Repository, str]:
        repository = self._hub.repositories.get(name)
        shown = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if repository is None or (repository.token and not repository.gated and shown != repository.token):
            raise _Refused(401, "RepoNotFound")
        commit = repository.commit(revision)
        if commit is None:
            raise _Refused(404, "RevisionNotFound")
        return repository, commit

    def _info(self, name: str, revision: str) -> None:
        repository, commit = self._repository(name, revision)
        siblings = [{"rfilename": each} for each in repository.files(commit)]
        self._json({"id": name, "modelId": name, "sha": commit, "siblings": siblings, "gated": repository.gated})

    def _tree(self, name: str, revision: str) -> None:
        repository, commit = self._repository(name, revision)
        entries = []
        for path, content in repository.files(commit).items():
            entry = {"type": "file", "path": path, "size": len(content), "oid": _git_hash(content)}
            if path.endswith(_LARGE):
                entry["lfs"] = {"oid": _etag(path, content), "size": len(content), "pointerSize": 134}
            entries.append(entry)
        self._json(entries)

    def _file(self, name: str, revision: str, path: str) -> None:
        repository, commit = self._repository(name, revision)
        if repository.gated and (self.headers.get("Authorization") or "") != f"Bearer {repository.token}":
            raise _Refused(403, "GatedRepo")
        content = repository.files(commit).get(path)
        if content is None:
            raise _Refused(404, "EntryNotFound")
        headers = {"ETag": f'"{_etag(path, content)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if found := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or ""):
            first = int(found[1])
            headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
            self._send(206, content[first:], headers)
        else:
            self._send(200, content, headers)

    def _json(self, body: object) -> None:
        self._send(200, json.dumps(body).encode(), {"Content-Type": "application/json"}, counts=False)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str], *, counts: bool = True) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | dict(headers)).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        for start in range(0, len(body), _CHUNK):
            if counts:
                self._hub.begun.set()
                self._hub.goes_on.wait()
            chunk = body[start : start + _CHUNK]
            with self._hub.lock:
                most = self._hub.breaks_off_after
                if counts and most is not None and self._hub.sent + len(chunk) > most:
                    self._hub.breaks_off_after = self._hub.sent  # nothing more, to nobody
                    self.close_connection = True
                    return
                self._hub.sent += len(chunk) if counts else 0
            self.wfile.write(chunk)


def _commit(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha1()
    for name in sorted(files):
        digest.update(f"{name} {_git_hash(files[name])}\n".encode())
    return digest.hexdigest()


def _git_hash(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


def _etag(path: str, content: bytes) -> str:
    return hashlib.sha256(content).hexdigest() if path.endswith(_LARGE) else _git_hash(content)
