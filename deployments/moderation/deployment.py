"""The moderation deployment: classifiers score prompts, input images and results.

A classifier has one method, `classify`: scores for texts, or for images, (H, W, 3) RGB of any size, in their order. It
is made from its spec in the thread that will use it, and raises CheckpointError when it can't be. Whatever it raises
while it classifies means that nothing was moderated.
"""

from __future__ import annotations

import asyncio
import logging
import pkgutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from deployments.batcher import Batcher
from deployments.contract.moderation import (
    IMAGE_CLASSIFIERS,
    TEXT_CLASSIFIERS,
    ClassifierSpec,
    ModeratorSpec,
    Scores,
)
from deployments.contract.objects import ObjectStore
from deployments.moderation.frames import is_video, pictures_of
from deployments.telemetry import logs

if TYPE_CHECKING:
    from deployments.images import Pixels

logger = logging.getLogger(__name__)

_LIMIT_S = 60.0
"""A batch that takes longer than this counts as hung."""
_FAULTS = 20
"""So many batches in a row that failed: the device is broken, not what is moderated."""
_VIDEOS = 2
"""That are read at a time: each may take a minute, and pictures must not wait for them."""
_PICTURES = 4


class Moderator:
    """Loads and classifies in one thread of its own, decodes in others; the event loop stays free.

    Whatever goes wrong is raised: what could not be moderated has not passed.
    """

    async def __init__(self, spec: ModeratorSpec) -> None:
        logs.begin(spec.logs)
        began = time.monotonic()
        self._objects = ObjectStore.of(spec)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="classifier")
        self._readers = ThreadPoolExecutor(max_workers=_PICTURES, thread_name_prefix="pictures")
        self._video_readers = ThreadPoolExecutor(max_workers=_VIDEOS, thread_name_prefix="videos")
        # Pictures are tens of megabytes each: those beyond are not even fetched.
        self._held, self._videos_held = asyncio.Semaphore(2 * spec.max_batch), asyncio.Semaphore(_VIDEOS)
        text, pictures = await asyncio.get_running_loop().run_in_executor(self._thread, _load, spec)
        self._texts = Batcher(_highest_of(text), self._thread, spec.max_batch)
        self._pictures = Batcher(_highest_of(pictures), self._thread, spec.max_batch)
        logger.info("moderation with %s after %.1f s", _names(spec), time.monotonic() - began)

    async def moderate_text(self, text: str) -> dict[str, float]:
        return dict(await self._texts(text))

    async def moderate_object(self, key: str) -> dict[str, float]:
        """Of a picture, or of the frames of a clip the worst. Raises FileNotFoundError, or that it can't be read."""
        readers, held = (self._video_readers, self._videos_held) if is_video(key) else (self._readers, self._held)
        async with held:
            data = await self._objects.get(key)
            pictures = await asyncio.get_running_loop().run_in_executor(readers, pictures_of, data, key)
            return _worst(await asyncio.gather(*map(self._pictures, pictures)))

    async def check_health(self) -> None:
        """Raises when a new process would do better: a classifier hangs, or can classify nothing any more."""
        for batcher in (self._texts, self._pictures):
            batcher.check_health(_LIMIT_S, _FAULTS)


def _load(spec: ModeratorSpec) -> tuple[list[Any], list[Any]]:
    """Runs in the thread that will classify, since torch counts threads per thread that calls it."""
    if any(classifier.checkpoint for classifier in spec.text + spec.pictures):
        from deployments.torch_process import set_up_torch

        set_up_torch(spec.threads)
    return (
        [pkgutil.resolve_name(TEXT_CLASSIFIERS[classifier.backend])(classifier) for classifier in spec.text],
        [pkgutil.resolve_name(IMAGE_CLASSIFIERS[classifier.backend])(classifier) for classifier in spec.pictures],
    )


def _highest_of(all_classifiers: Sequence[Any]) -> Any:
    """Scores items with every classifier; of each category, the highest score counts."""

    def moderated(items: Sequence[str] | Sequence[Pixels]) -> list[Scores]:
        opinions = [classifier.classify(items) for classifier in all_classifiers]
        return [_worst([opinion[index] for opinion in opinions]) for index in range(len(items))]

    return moderated


def _worst(all_scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = {name for scores in all_scores for name in scores}
    return {name: max(scores.get(name, 0.0) for scores in all_scores) for name in names}


def _names(spec: ModeratorSpec) -> str:
    def told(classifier: ClassifierSpec) -> str:
        return f"{classifier.backend} {classifier.checkpoint or ''}".strip()

    return ", ".join(told(classifier) for classifier in spec.text + spec.pictures) or "nothing"
