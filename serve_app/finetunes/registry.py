"""The registry of LoRA fine-tunes: owner, base, status.

| key | kind | holds |
|---|---|---|
| `gen:finetune:{id}` | hash | `id name project endpoint queue key status rank layers size created` |
| `gen:finetunes:{project}` | zset | the project's ids by upload |

`name` is sealed if the settings say so.

A tuned model's file is checked first. The model is `Pending` while the file is being stored, then `Ready`. The remains
of a crashed upload are therefore always listed and can be deleted.
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
    """The project is closed and takes no tuned models."""


class FinetuneDeleted(Exception):
    """The tuned model was deleted while its file was being stored."""


class InvalidAdapter(ValueError):
    """The file is no tuned model of the base. Clients may read the message."""


class CheckFailed(Exception):
    """The file could not be checked, for example because the base's description is out of reach."""


class TooManyFinetunes(Exception):
    """The project has too many tuned models, or too many are being uploaded. Clients may read the message."""


class UploadTooSlow(Exception):
    """The file did not come in time. Clients may read the message."""


class ObjectStoreUnreachable(Exception):
    """The object store is out of reach or full, or it refuses to store or delete a file."""


@dataclass(frozen=True, slots=True)
class Finetune:
    id: str
    name: str
    project: str
    endpoint: str
    """Endpoint of the base model."""
    queue: str
    key: str
    """Key of the weights in the object store."""
    created: float
    """Epoch seconds."""
    status: Literal["Pending", "Ready"] = "Pending"
    rank: int = 0
    layers: int = 0
    size: int = 0
    """Bytes of the file."""


class FinetuneRegistry:
    def __init__(self, redis: Redis, prefix: str = "gen:", at_rest: AtRest = IN_CLEAR) -> None:
        self._redis = redis
        self._prefix = prefix
        self._at_rest = at_rest
        self._keep, self._drop = (
            redis.register_script((_HERE / f"{name}.lua").read_text()) for name in ("keep", "drop")
        )

    async def begin(self, name: str, project: str, endpoint: str, queue: str) -> Finetune:
        """Creates a `Pending` tuned model. Raises FinetunesClosed."""
        finetune_id = secrets.token_hex(8)
        key = f"finetunes/{finetune_id}/weights.safetensors"
        finetune = Finetune(finetune_id, name, project, endpoint, queue, key, round(time.time(), 3))
        if not await self._write(finetune, new=True):
            raise FinetunesClosed
        return finetune

    async def finish(self, finetune: Finetune, *, rank: int, layers: int, size: int) -> Finetune:
        """Makes the tuned model `Ready`. Raises FinetuneDeleted."""
        ready = dataclasses.replace(finetune, status="Ready", rank=rank, layers=layers, size=size)
        if not await self._write(ready, new=False):
            raise FinetuneDeleted
        return ready

    async def get(self, finetune_id: str, project: str) -> Finetune | None:
        """Returns a tuned model of the project, if it exists."""
        raw = await cast(Awaitable[dict[str, str]], self._redis.hgetall(self._key(finetune_id)))
        return self._finetune(raw) if raw and raw["project"] == project else None

    async def weights(self, finetune_id: str, project: str, queue: str) -> str | None:
        """Returns the key of the weights if the tuned model is `Ready` and of this base."""
        finetune = await self.get(finetune_id, project)
        if finetune is None or finetune.status != "Ready" or finetune.queue != queue:
            return None
        return finetune.key

    async def list(self, project: str) -> list[Finetune]:
        """Lists the tuned models of the project, newest first."""
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
        """Returns the name; the id if the name's sealing key is gone, as the tuned model is usable all the same."""
        try:
            return self._at_rest.open(raw["name"])
        except UnknownSealingKey:
            logger.error("finetune %s was sealed with a key that is no longer among sealing.keys", raw["id"])
            return raw["id"]
