"""A fake model hub that serves checkpoints to the hub's own client, and a machine that fetches from it.

As on the hub, large files are named by their SHA-256 and the others by their git hash, files come by ranges, and a
repository can be gated or private.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, TypeAlias
from urllib.parse import unquote

from deployments.contract.model import BUNDLED

MAIN = "main"
PIPELINE, REWRITER, NETWORK = "owner/pipeline", "owner/rewriter", "owner/network/onnx/model.onnx"
_LARGE = (".safetensors", ".bin", ".onnx")
_CHUNK = 64 * 1024
State: TypeAlias = Mapping[str, bytes]
"""Each file's content."""


def read_files(folder: Path, **changes: bytes | None) -> dict[str, bytes]:
    """Returns the files of a folder, with changes; a change to None leaves a file out."""
    files = {each.relative_to(folder).as_posix(): each.read_bytes() for each in folder.rglob("*") if each.is_file()}
    return {name: content for name, content in (files | changes).items() if content is not None}


def pipeline_files() -> dict[str, bytes]:
    """Returns a bundled checkpoint as a hub has it: with its own autoencoder, and files that no replica reads."""
    index = json.loads((BUNDLED / "flux" / "model_index.json").read_bytes())
    del index["_shared"]
    others = {"README.md": b"about it", "all-in-one.safetensors": b"the same once more", "index": b""}
    parts = {f"vae/{name}": it for name, it in read_files(BUNDLED.parent / "autoencoders" / "flux1").items()}
    return read_files(BUNDLED / "flux") | parts | others | {"model_index.json": json.dumps(index).encode()}


def sibling_files(files: State) -> dict[str, bytes]:
    """Returns further files of a repository: other formats, half precision, and an older autoencoder."""
    others: dict[str, bytes] = {}
    for name, content in files.items():
        if "/" in name and name.endswith(".safetensors"):
            stem = name.removesuffix(".safetensors")
            folder = name.rpartition("/")[0]
            others |= {f"{stem}.bin": content, f"{stem}.fp16.safetensors": content[: len(content) // 2]}
            others |= {f"{folder}/flax_model.msgpack": content, f"{folder}/model.onnx": content}
            others |= {f"{folder}/openvino_model.bin": content, f"{folder}/openvino_model.xml": b"<net/>"}
            others |= {f"old_{name}": content}
    return others


@dataclass
class Repository:
    revisions: dict[str, State]
    """Files by branch or tag."""
    gated: bool = False
    token: str = ""
    """Token that readers need; the files of a gated repository are listed for everyone."""

    def commit(self, revision: str) -> str | None:
        """Returns the commit of a branch, a tag or a commit; None if it does not exist."""
        by_name = {name: _commit(files) for name, files in self.revisions.items()}
        return by_name.get(revision) or (revision if revision in by_name.values() else None)

    def files(self, commit: str) -> State:
        return next(files for files in self.revisions.values() if _commit(files) == commit)


class Hub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, Repository] = {}
        self.requests: Counter[str] = Counter()
        """Number of requests by method and path."""
        self.tokens: set[str] = set()
        """Tokens of all requests so far."""
        self.sent_bytes = 0
        """Bytes of files."""
        self.max_bytes: int | None = None
        """Bytes of files to send in all. After that the hub cuts each connection."""
        self.resumed, self.started = Event(), Event()
        """`started` is set at the first byte of a file. While `resumed` is not set, files stop."""
        self.resumed.set()
        self.lock = Lock()


@contextmanager
def running() -> Iterator[Hub]:
    with Hub() as hub:
        thread = Thread(target=hub.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.resumed.set()
            hub.shutdown()
            thread.join()


class _Refused(Exception):
    def __init__(self, status: int, code: str) -> None:
        self.status, self.code = status, code


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        with self.server.lock:
            self.server.requests[f"{self.command} {path}"] += 1
        if self.server.max_bytes is not None and self.server.sent_bytes >= self.server.max_bytes:
            self.close_connection = True
            return
        self._token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if self._token:
            self.server.tokens.add(self._token)
        try:
            if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)", path):
                self._serve_metadata(*match.groups())
            elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                self._file(*match.groups())
            else:
                raise _Refused(404, "RepoNotFound")
        except _Refused as refused:
            self._send(refused.status, b"", {"X-Error-Code": refused.code, "X-Error-Message": refused.code})

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _repository(self, name: str, revision: str) -> tuple[Repository, str]:
        repository = self.server.repositories.get(name)
        if repository is None or (repository.token and not repository.gated and self._token != repository.token):
            raise _Refused(401, "RepoNotFound")
        commit = repository.commit(revision)
        if commit is None:
            raise _Refused(404, "RevisionNotFound")
        return repository, commit

    def _serve_metadata(self, name: str, what: str, revision: str) -> None:
        repository, commit = self._repository(name, revision)
        files = repository.files(commit)
        body: Any = {"id": name, "modelId": name, "sha": commit, "gated": repository.gated}
        body["siblings"] = [{"rfilename": each} for each in files]
        if what == "tree":
            body = [{"type": "file", "path": p, "size": len(it), "oid": _git_hash(it)} for p, it in files.items()]
            for entry in body:
                if (path := entry["path"]).endswith(_LARGE):
                    entry["lfs"] = {"oid": _etag(path, files[path]), "size": entry["size"], "pointerSize": 134}
        self._send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _file(self, name: str, revision: str, path: str) -> None:
        repository, commit = self._repository(name, revision)
        if repository.gated and self._token != repository.token:
            raise _Refused(403, "GatedRepo")
        content = repository.files(commit).get(path)
        if content is None:
            raise _Refused(404, "EntryNotFound")
        headers = {"ETag": f'"{_etag(path, content)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if match := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or ""):
            first = int(match[1])
            headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
            self._send(206, content[first:], headers, counts=True)
        else:
            self._send(200, content, headers, counts=True)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str], *, counts: bool = False) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | dict(headers)).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        hub = self.server
        for start in range(0, len(body), _CHUNK):
            chunk = body[start : start + _CHUNK]
            if counts:
                hub.started.set()
                hub.resumed.wait()
                with hub.lock:
                    if hub.max_bytes is not None and hub.sent_bytes + len(chunk) > hub.max_bytes:
                        hub.max_bytes = hub.sent_bytes  # refuses every later request
                        self.close_connection = True
                        return
                    hub.sent_bytes += len(chunk)
            self.wfile.write(chunk)


def _commit(files: State) -> str:
    listing = "".join(f"{name} {_git_hash(files[name])}\n" for name in sorted(files))
    return hashlib.sha1(listing.encode()).hexdigest()


def _git_hash(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


def _etag(path: str, content: bytes) -> str:
    return hashlib.sha256(content).hexdigest() if path.endswith(_LARGE) else _git_hash(content)


@dataclass(frozen=True)
class Profile:
    """A machine's settings, cache folder and environment."""

    folder: Path
    environment: dict[str, str]
    settings: dict[str, Any]

    def write_config(self) -> Path:
        config = self.folder / "config.yaml"
        config.write_text(json.dumps(self.settings))
        return config

    def command(self, *words: str) -> list[str]:
        """Returns the command line `gen-serve weights …`."""
        start = [sys.executable, "-c", "from serve_app.cli import main; main()", "weights"]
        return [*start, *words, "--config", str(self.write_config())]

    def run(self, command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self.environment | environment, capture_output=True, text=True, timeout=300)

    def fetch(self, **environment: str) -> tuple[int, dict[str, str], str]:
        """Runs `weights fetch`. Returns the exit code, the state of each checkpoint, and stderr."""
        result = self.run(self.command("fetch", "--json"), **environment)
        return (
            result.returncode,
            {each["checkpoint"]: each["state"] for each in json.loads(result.stdout)},
            result.stderr,
        )

    def list_checkpoints(self) -> dict[str, dict[str, Any]]:
        """Returns the rows of `weights list` by checkpoint."""
        return {row["checkpoint"]: row for row in json.loads(self.run(self.command("list", "--json")).stdout)}

    def offline(self, script: str) -> str:
        """Runs a script with the hub switched off, as in a replica. Returns its output."""
        result = self.run([sys.executable, "-c", script], HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    @property
    def files(self) -> set[str]:
        """Names of the cached files in their repositories."""
        folders = (self.folder / "hub").glob("hub/models--*/snapshots/*")
        return {file.relative_to(each).as_posix() for each in folders for file in each.rglob("*") if file.is_file()}


Profiles: TypeAlias = Callable[..., Profile]
"""Creates a profile whose catalog has the given models."""
