"""The registry of LoRA fine-tunes: owner, base, status.

| key | kind | holds |
|---|---|---|
| `gen:finetune:{id}` | hash | `id name project endpoint queue key status rank layers size created` |
| `gen:finetunes:{project}` | zset | the project's ids by upload |

`name` is sealed where the settings seal what clients wrote.

A tuned model is `Pending` from before its file is stored until it has been checked; only then it is `Ready`. What a
crashed upload leaves behind is therefore always listed, and can be deleted.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from redis.asyncio import Redis

from serve_app.encryption import IN_CLEAR, AtRest, UnknownSealingKey
from serve_app.storage.scripts import flat

logger = logging.getLogger(__name__)

_HERE: Final = Path(__file__).parent


class FinetunesClosed(Exception):
    """The project takes no more tuned models until it is opened again."""


class Removed(Exception):
    """The entry was removed while its file was being stored."""


@dataclass(frozen=True, slots=True)
class Finetune:
    id: str
    name: str
    project: str
    endpoint: str
    """The base endpoint it was made for."""
    queue: str
    key: str
    """Of its weights, in the object store."""
    created: float
    """Epoch seconds."""
    status: Literal["Pending", "Ready"] = "Pending"
    rank: int = 0
    layers: int = 0
    size: int = 0
    """Length of the file in bytes."""


class FinetuneRegistry:
    def __init__(self, redis: Redis, prefix: str = "gen:", at_rest: AtRest = IN_CLEAR) -> None:
        self._redis = redis
        self._prefix = prefix
        self._at_rest = at_rest
        self._keep, self._drop = (
            redis.register_script((_HERE / f"{name}.lua").read_text()) for name in ("keep", "drop")
        )

    async def begin(self, name: str, project: str, endpoint: str, queue: str) -> Finetune:
        """A new entry, `Pending`, that says where its file is to be stored. Raises FinetunesClosed."""
        finetune_id = secrets.token_hex(8)
        key = f"finetunes/{finetune_id}/weights.safetensors"
        finetune = Finetune(finetune_id, name, project, endpoint, queue, key, round(time.time(), 3))
        if not await self._write(finetune, new=True):
            raise FinetunesClosed
        return finetune

    async def finish(self, finetune: Finetune, *, rank: int, layers: int, size: int) -> Finetune:
        """Makes the entry `Ready`. Raises Removed."""
        ready = dataclasses.replace(finetune, status="Ready", rank=rank, layers=layers, size=size)
        if not await self._write(ready, new=False):
            raise Removed
        return ready

    async def get(self, finetune_id: str, project: str) -> Finetune | None:
        """None when the project has no such tuned model."""
        raw = await cast(Awaitable[dict[str, str]], self._redis.hgetall(self._key(finetune_id)))
        return self._finetune(raw) if raw and raw["project"] == project else None

    async def weights(self, finetune_id: str, project: str, queue: str) -> str | None:
        """The object with the weights of a finetune that is ready, and for this model; None where there is none."""
        finetune = await self.get(finetune_id, project)
        usable = finetune is not None and finetune.status == "Ready" and finetune.queue == queue
        return finetune.key if finetune is not None and usable else None

    async def list(self, project: str) -> list[Finetune]:
        """Newest first."""
        ids = await cast(Awaitable[list[str]], self._redis.zrange(self._index(project), 0, -1, desc=True))
        pipe = self._redis.pipeline(transaction=False)
        for finetune_id in ids:
            pipe.hgetall(self._key(finetune_id))
        return [self._finetune(raw) for raw in (await pipe.execute() if ids else []) if raw]

    async def count(self, project: str) -> int:
        return await cast(Awaitable[int], self._redis.zcard(self._index(project)))

    async def remove(self, finetune: Finetune) -> None:
        record, index = self._key(finetune.id), self._index(finetune.project)
        await self._drop(keys=[self._prefix], args=[record, index, finetune.id])

    async def _write(self, finetune: Finetune, *, new: bool) -> bool:
        mapping: dict[Any, Any] = dataclasses.asdict(finetune) | {"name": self._at_rest.seal(finetune.name)}
        record, index = self._key(finetune.id), self._index(finetune.project)
        project = f"{self._prefix}project:{finetune.project}"
        args = [record, index, finetune.id, finetune.created, project, int(new), *flat(mapping)]
        return await self._keep(keys=[self._prefix], args=args) == 1

    def _key(self, finetune_id: str) -> str:
        return f"{self._prefix}finetune:{finetune_id}"

    def _index(self, project: str) -> str:
        return f"{self._prefix}finetunes:{project}"

    def _finetune(self, raw: dict[str, str]) -> Finetune:
        return Finetune(
            id=raw["id"],
            name=self._name(raw),
            project=raw["project"],
            endpoint=raw["endpoint"],
            queue=raw["queue"],
            key=raw["key"],
            created=float(raw["created"]),
            status="Ready" if raw["status"] == "Ready" else "Pending",
            rank=int(raw["rank"]),
            layers=int(raw["layers"]),
            size=int(raw["size"]),
        )

    def _name(self, raw: dict[str, str]) -> str:
        """Its id where the key of its name is gone: it is as usable as before."""
        try:
            return self._at_rest.open(raw["name"])
        except UnknownSealingKey:
            logger.error("finetune %s was sealed with a key that is no longer among sealing.keys", raw["id"])
            return raw["id"]


class Refused(ValueError):
    """The file is no tuned model of the base."""


class CheckFailed(Exception):
    """Nothing can be said of the file now: the base's description is out of reach, say."""


class TooMany(Exception):
    """The project has as many tuned models as it may, or too many are being uploaded."""


class TooSlow(Exception):
    """The file did not come in time."""


class ObjectStoreUnreachable(Exception):
    """The object store is away, full or refuses to store or delete a file."""
