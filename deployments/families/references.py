"""Reference pictures as a model reads them, kept by their content: many jobs are made from the same picture."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Generic

from PIL import Image

from deployments.byte_cache import MB, ByteCache, CacheFigures
from deployments.contract.model import Caches
from deployments.engine.backend import JobError
from deployments.families.kept import T, size_of
from deployments.families.prepared_request import PreparedRequest
from deployments.pictures.pixels import open_picture


class References(Generic[T]):
    def __init__(self, most: int, caches: Caches, *, alone_differs: bool = False) -> None:
        """A job may have `most`. `alone_differs` where the only one of a job is read in another way than others."""
        self._most = most
        self._alone_differs = alone_differs
        self._cache: ByteCache[tuple[bytes, bool], T] = ByteCache(caches.references_mb * MB, size_of)

    @property
    def figures(self) -> CacheFigures:
        return self._cache.figures

    def clear(self) -> None:
        self._cache.clear()

    def read(self, request: PreparedRequest, read: Callable[[Image.Image, bool], T]) -> list[T]:
        """Each of the job's references by `read`, which is given the picture, and whether it is the only one where that
        matters. Raises JobError for one that is no picture, and for too many."""
        references = request.references
        if len(references) > self._most:
            raise JobError(f"at most {self._most} input pictures are possible")
        alone = self._alone_differs and len(references) == 1
        return [
            self._cache.made((sha256(data).digest(), alone), lambda data=data: read(open_picture(data), alone))
            for data in references
        ]
