"""The object store that the service and the models share: inputs are stored at submission, results at the end.

Keys are relative paths such as `results/<task>/<attempt>/image.jpeg`. Any URL that obstore knows works
(`file:///…`, `s3://…`, `gs://…`, `az://…`, `memory:///`). Writes are atomic: a reader sees a whole object or none.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol, cast
from urllib.parse import unquote, urlparse

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, MemoryStore, S3Store, from_url

from deployments.proxies import object_store_options

UNREACHABLE: Final = (BaseError, OSError)
"""Errors of a store that is down, full or refuses access, after its own retries."""

OptionsHere = Callable[[], Mapping[str, Any]]
"""Reads secret options in the process that opens the store, so that no deployment's arguments hold a secret."""


class StoreLocation(Protocol):
    @property
    def objects_url(self) -> str: ...
    @property
    def objects_options(self) -> Mapping[str, Any]: ...
    @property
    def objects_secrets(self) -> OptionsHere | None: ...


_LISTINGS: Final = 64
"""Folders listed at a time: hundreds a second in a store that takes tens of milliseconds for each."""
_BULK: Final = 1000
"""Keys in one page of a listing and in one deletion; S3 takes no more."""


class WrongOptions(ValueError):
    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(
            f"one of the options {', '.join(sorted(names))} is unknown or has a wrong value; those of the HTTP client, "
            "such as allow_http, go under client_options"
        )


def _open(url: str, options: dict[str, Any]) -> Any:
    try:
        return from_url(url, **object_store_options(url, options))
    except BaseException as problem:
        # obstore 0.12 panics at HTTP client options outside client_options.
        is_wrong = isinstance(problem, BaseError | TypeError) or type(problem).__name__ == "PanicException"
        if options and is_wrong:
            raise WrongOptions(options) from None
        raise


class ObjectStore:
    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        """`url` names the store; `options` are obstore's own (credentials, region, endpoint).

        Raises BaseError for a URL of an unknown scheme, WrongOptions for options that obstore does not take.
        """
        parts = urlparse(url)
        self.root: Path | None = None
        """Folder of a local store, else None."""
        if parts.scheme == "file":
            self.root = Path(unquote(parts.path))
            self.root.mkdir(parents=True, exist_ok=True)
            self._store = LocalStore(prefix=self.root, automatic_cleanup=True)
        else:
            self._store = _open(url, dict(options or {}))

    @classmethod
    def from_location(cls, location: StoreLocation) -> ObjectStore:
        """Raises ValueError if the secret options can't be read."""
        secrets = location.objects_secrets() if location.objects_secrets else {}
        return cls(location.objects_url, {**location.objects_options, **secrets})

    @property
    def can_sign(self) -> bool:
        """True when the store itself can hand out links; a local one can't."""
        return not isinstance(self._store, (LocalStore, MemoryStore))

    def _attributes(self, content_type: str) -> dict[str, str] | None:
        """Returns None for local stores, which refuse attributes; there the file name gives the content type."""
        return {"Content-Type": content_type} if self.can_sign else None

    async def put(self, key: str, data: bytes, content_type: str) -> None:
        """Stores an object in one request, as stores charge for each."""
        attributes = self._attributes(content_type)
        await obstore.put_async(self._store, key, data, attributes=attributes, use_multipart=False)

    async def put_file(self, key: str, file: Path, content_type: str) -> None:
        """Stores a file, in parts if the store takes them, so that it need not be in memory."""
        await obstore.put_async(self._store, key, file, attributes=self._attributes(content_type))

    def put_blocking(self, key: str, data: bytes, content_type: str) -> None:
        obstore.put(self._store, key, data, attributes=self._attributes(content_type), use_multipart=False)

    def put_file_blocking(self, key: str, file: Path, content_type: str) -> None:
        obstore.put(self._store, key, file, attributes=self._attributes(content_type))

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes]) -> None:
        """Stores chunks as they come; nothing if they raise."""
        await obstore.put_async(self._store, key, chunks)

    async def get(self, key: str, admit: Callable[[int], None] = lambda size: None) -> bytes:
        """Raises FileNotFoundError for a missing object. `admit` gets its size before it is read, and may raise."""
        found = await obstore.get_async(self._store, key)
        admit(found.meta["size"])
        return bytes(await found.bytes_async())

    def get_blocking(self, key: str) -> bytes:
        """Raises FileNotFoundError for a missing object."""
        return bytes(obstore.get(self._store, key).bytes())

    async def keys(self, prefix: str) -> list[str]:
        """Returns all keys below the folder `prefix`."""
        result: list[str] = []
        async for batch in obstore.list(self._store, prefix=prefix, chunk_size=_BULK):
            result.extend(entry["path"] for entry in batch)
        return result

    async def list_prefixes(self, prefixes: Sequence[str]) -> list[list[str]]:
        """Returns all keys below each folder. Lists the folders concurrently."""
        limit = asyncio.Semaphore(_LISTINGS)

        async def list_folder(prefix: str) -> list[str]:
            async with limit:
                return await self.keys(prefix)

        return await asyncio.gather(*map(list_folder, prefixes))

    async def delete(self, keys: Sequence[str]) -> None:
        """Deletes objects, many in one request if the store can. Ignores missing ones."""
        for start in range(0, len(keys), _BULK):
            batch = list(keys[start : start + _BULK])
            try:
                await obstore.delete_async(self._store, batch)
            except FileNotFoundError:
                # A local store raises at the first missing object, and may leave the others.
                for key in batch:
                    with contextlib.suppress(FileNotFoundError):
                        await obstore.delete_async(self._store, key)

    async def delete_prefix(self, prefix: str) -> None:
        await self.delete_prefixes([prefix])

    async def delete_prefixes(self, prefixes: Sequence[str]) -> None:
        """Deletes every object below the folders, which are listed concurrently."""
        await self.delete([key for batch in await self.list_prefixes(prefixes) for key in batch])

    async def sign(self, key: str, life: timedelta) -> str:
        """Returns a link that opens `key` without further credentials. Only for stores that can sign."""
        return await obstore.sign_async(cast(S3Store, self._store), "GET", key, life)
