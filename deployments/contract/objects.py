"""The object store that the service and the models share: inputs go in at submission, results come out at the end.

Keys are relative paths such as `results/<task>/<attempt>/picture.jpeg`. Any URL that obstore knows works
(`file:///…`, `s3://…`, `gs://…`, `az://…`, `memory:///`). Writing is atomic: a reader sees a whole object or none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlparse

import obstore
from obstore.store import LocalStore, MemoryStore, S3Store, from_url


class ObjectStore:
    def __init__(self, url: str, options: dict[str, Any] | None = None) -> None:
        """`url` names the store; `options` go to obstore as they are (credentials, region, endpoint).

        Raises ValueError for a URL of an unknown scheme.
        """
        parsed = urlparse(url)
        self.root: Path | None = None
        """Folder of a local store, else None."""
        if parsed.scheme == "file":
            self.root = Path(unquote(parsed.path))
            self.root.mkdir(parents=True, exist_ok=True)
            self._store = LocalStore(prefix=self.root)
        else:
            self._store = from_url(url, **cast(Any, options or {}))

    @property
    def can_sign(self) -> bool:
        """Whether the store itself can hand out links; a local one can't."""
        return not isinstance(self._store, (LocalStore, MemoryStore))

    async def put(self, key: str, data: bytes, content_type: str) -> None:
        # Local stores refuse attributes; there the content type follows from the file name.
        attributes = {"Content-Type": content_type} if self.can_sign else None
        await obstore.put_async(self._store, key, data, attributes=attributes)

    async def put_file(self, key: str, file: Path, content_type: str) -> None:
        """As `put`, from a file, without holding all of it in memory where the store takes parts."""
        attributes = {"Content-Type": content_type} if self.can_sign else None
        await obstore.put_async(self._store, key, file, attributes=attributes)

    def put_blocking(self, key: str, data: bytes, content_type: str) -> None:
        """As `put`, for the engine's own threads."""
        attributes = {"Content-Type": content_type} if self.can_sign else None
        obstore.put(self._store, key, data, attributes=attributes)

    def put_file_blocking(self, key: str, file: Path, content_type: str) -> None:
        """As `put_file`, for the engine's own threads."""
        attributes = {"Content-Type": content_type} if self.can_sign else None
        obstore.put(self._store, key, file, attributes=attributes)

    async def get(self, key: str) -> bytes:
        """Raises FileNotFoundError when there is no such object."""
        return bytes(await (await obstore.get_async(self._store, key)).bytes_async())

    def get_blocking(self, key: str) -> bytes:
        """As `get`, for the engine's own threads."""
        return bytes(obstore.get(self._store, key).bytes())

    async def rename(self, key: str, new: str) -> None:
        """Raises FileNotFoundError when there is no such object. Stores without renaming copy and delete."""
        await obstore.rename_async(self._store, key, new)

    async def keys(self, prefix: str) -> list[str]:
        """All keys below the folder `prefix`."""
        found: list[str] = []
        async for batch in obstore.list(self._store, prefix=prefix):
            found.extend(entry["path"] for entry in batch)
        return found

    async def delete(self, keys: Sequence[str]) -> None:
        """Deletes what is there, many at once where the store can; a key that is gone already is no error."""
        try:
            await obstore.delete_async(self._store, list(keys))
        except FileNotFoundError:
            # Local stores say so of the first that is gone, and may leave the rest.
            for key in keys:
                with contextlib.suppress(FileNotFoundError):
                    await obstore.delete_async(self._store, key)

    async def delete_prefix(self, prefix: str) -> None:
        """Deletes every object below the folder `prefix`."""
        await self.delete(await self.keys(prefix))
        if self.root is not None:
            _remove_empty(self.root, self.root / prefix)

    async def sign(self, key: str, life: timedelta) -> str:
        """A link that opens `key` without further credentials, for stores that can sign."""
        return await obstore.sign_async(cast(S3Store, self._store), "GET", key, life)


def _remove_empty(root: Path, folder: Path) -> None:
    """Local stores leave empty folders behind; removes them from `folder` inwards, never `root` itself."""
    if folder == root or root not in folder.parents or not folder.is_dir():
        return
    for path in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
        path.rmdir()
    folder.rmdir()
