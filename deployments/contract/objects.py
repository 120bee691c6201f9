"""The object store that the service and the models share: inputs go in at submission, results come out at the end.

Keys are relative paths such as `results/<task>/<attempt>/image.jpeg`. Any URL that obstore knows works
(`file:///…`, `s3://…`, `gs://…`, `az://…`, `memory:///`). Writing is atomic: a reader sees a whole object or none.
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
"""What callers see when the store is away, full or refuses them, after its own retries."""

OptionsHere = Callable[[], Mapping[str, Any]]
"""Options that open the store, read in the process that needs them: what a deployment is bound with holds no secret."""


class StoredAt(Protocol):
    """What says where objects are."""

    @property
    def objects_url(self) -> str: ...
    @property
    def objects_options(self) -> Mapping[str, Any]: ...
    @property
    def objects_secrets(self) -> OptionsHere | None: ...


_LISTINGS: Final = 64
"""At a time: enough for hundreds of folders a second in a store that takes tens of milliseconds for each."""
_BULK: Final = 1000
"""Keys in one page of a listing, and in one deletion, as many as S3 takes."""


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
        # obstore 0.12 panics at options of the HTTP client that are not under client_options.
        is_wrong = isinstance(problem, BaseError | TypeError) or type(problem).__name__ == "PanicException"
        if options and is_wrong:
            raise WrongOptions(options) from None
        raise


class ObjectStore:
    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        """`url` names the store; `options` go to obstore as they are (credentials, region, endpoint).

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
    def from_location(cls, place: StoredAt) -> ObjectStore:
        """Raises ValueError where what opens it is not to be found."""
        secrets = place.objects_secrets() if place.objects_secrets else {}
        return cls(place.objects_url, {**place.objects_options, **secrets})

    @property
    def can_sign(self) -> bool:
        """Whether the store itself can hand out links; a local one can't."""
        return not isinstance(self._store, (LocalStore, MemoryStore))

    async def put(self, key: str, data: bytes, content_type: str) -> None:
        """In one request: stores charge for each."""
        # Local stores refuse attributes; there the content type follows from the file name.
        attributes = {"Content-Type": content_type} if self.can_sign else None
        await obstore.put_async(self._store, key, data, attributes=attributes, use_multipart=False)

    async def put_file(self, key: str, file: Path, content_type: str) -> None:
        """As `put`, from a file, without holding all of it in memory where the store takes parts."""
        attributes = {"Content-Type": content_type} if self.can_sign else None
        await obstore.put_async(self._store, key, file, attributes=attributes)

    def put_blocking(self, key: str, data: bytes, content_type: str) -> None:
        """As `put`, for the engine's own threads."""
        attributes = {"Content-Type": content_type} if self.can_sign else None
        obstore.put(self._store, key, data, attributes=attributes, use_multipart=False)

    def put_file_blocking(self, key: str, file: Path, content_type: str) -> None:
        """As `put_file`, for the engine's own threads."""
        attributes = {"Content-Type": content_type} if self.can_sign else None
        obstore.put(self._store, key, file, attributes=attributes)

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes]) -> None:
        """As `put`, while they come. Stores nothing where they raise."""
        await obstore.put_async(self._store, key, chunks)

    async def get(self, key: str, admit: Callable[[int], None] = lambda size: None) -> bytes:
        """Raises FileNotFoundError when there is no such object. `admit` may raise for its size, before it is read."""
        found = await obstore.get_async(self._store, key)
        admit(found.meta["size"])
        return bytes(await found.bytes_async())

    def get_blocking(self, key: str) -> bytes:
        """As `get`, for the engine's own threads."""
        return bytes(obstore.get(self._store, key).bytes())

    async def keys(self, prefix: str) -> list[str]:
        """All keys below the folder `prefix`."""
        result: list[str] = []
        async for batch in obstore.list(self._store, prefix=prefix, chunk_size=_BULK):
            result.extend(entry["path"] for entry in batch)
        return result

    async def list_prefixes(self, prefixes: Sequence[str]) -> list[list[str]]:
        """All keys below each of these folders, which are listed side by side."""
        turns = asyncio.Semaphore(_LISTINGS)

        async def below(prefix: str) -> list[str]:
            async with turns:
                return await self.keys(prefix)

        return await asyncio.gather(*map(below, prefixes))

    async def delete(self, keys: Sequence[str]) -> None:
        """Deletes what is there, many at once where the store can; a key that is gone already is no error."""
        for start in range(0, len(keys), _BULK):
            batch = list(keys[start : start + _BULK])
            try:
                await obstore.delete_async(self._store, batch)
            except FileNotFoundError:
                # Local stores say so of the first that is gone, and may leave the rest.
                for key in batch:
                    with contextlib.suppress(FileNotFoundError):
                        await obstore.delete_async(self._store, key)

    async def delete_prefix(self, prefix: str) -> None:
        """Deletes every object below the folder `prefix`."""
        await self.delete_prefixes([prefix])

    async def delete_prefixes(self, prefixes: Sequence[str]) -> None:
        """Deletes every object below these folders: all are listed side by side, then deleted up to 1000 at once."""
        await self.delete([key for batch in await self.list_prefixes(prefixes) for key in batch])

    async def sign(self, key: str, life: timedelta) -> str:
        """A link that opens `key` without further credentials, for stores that can sign."""
        return await obstore.sign_async(cast(S3Store, self._store), "GET", key, life)
