"""Moderation: classifiers score prompts, input images and results.

Classifiers without weights run in the dispatchers' own process, the others in a deployment.

A classifier has one method, `classify`, which returns scores for texts, or for images, (H, W, 3) RGB of any size, in
order. It is made from its spec in the thread that uses it, and raises CheckpointError if it can't be. Any error of
`classify` means that nothing was moderated.
"""

from __future__ import annotations

import asyncio
import logging
import pkgutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from deployments.batcher import Batcher
from deployments.contract.moderation import (
    IMAGE_CLASSIFIERS,
    TEXT_CLASSIFIERS,
    WEIGHTLESS,
    ModeratorSpec,
    Scores,
    highest,
)
from deployments.contract.objects import ObjectStore
from deployments.moderation.frames import decode_images, is_video
from deployments.proxies import apply_proxy
from deployments.telemetry import logs

if TYPE_CHECKING:
    from deployments.images import Pixels

logger = logging.getLogger(__name__)

_MAX_BATCH_S = 60.0
"""Seconds after which a batch counts as hung."""
_MAX_FAULTS = 20
"""Failed batches in a row after which the device is broken, not the items."""
_VIDEOS = 2
"""Videos read at a time: each may take a minute, and images must not wait for them."""
_IMAGES = 4


class LocalModerator:
    """Classifies in one thread and decodes in others, so that the event loop stays free. Raises every error, as what
    could not be moderated has not passed.
    """

    def __init__(
        self,
        spec: ModeratorSpec,
        thread: ThreadPoolExecutor | None = None,
        classifiers: tuple[list[Any], list[Any]] | None = None,
    ) -> None:
        """`thread` is the one that loaded `classifiers`, of texts and of images; by default loads those of `spec`."""
        self._objects = ObjectStore.from_location(spec)
        self._thread = thread or ThreadPoolExecutor(max_workers=1, thread_name_prefix="classifier")
        self._readers = ThreadPoolExecutor(max_workers=_IMAGES, thread_name_prefix="images")
        self._video_readers = ThreadPoolExecutor(max_workers=_VIDEOS, thread_name_prefix="videos")
        # Images take tens of megabytes each, so more than these are not even fetched.
        self._image_slots, self._video_slots = asyncio.Semaphore(2 * spec.max_batch), asyncio.Semaphore(_VIDEOS)
        text, images = classifiers or _load(spec)
        self._texts = Batcher(_combine(text), self._thread, spec.max_batch)
        self._images = Batcher(_combine(images), self._thread, spec.max_batch)

    async def moderate_text(self, text: str) -> dict[str, float]:
        return dict(await self._texts(text))

    async def moderate_object(self, key: str) -> dict[str, float]:
        """Scores an image, or the worst frame of a video. Raises FileNotFoundError, UnreadableError."""
        readers, slots = (
            (self._video_readers, self._video_slots) if is_video(key) else (self._readers, self._image_slots)
        )
        async with slots:
            data = await self._objects.get(key)
            images = await asyncio.get_running_loop().run_in_executor(readers, decode_images, data, key)
            return highest(await asyncio.gather(*map(self._images, images)))


class Moderator(LocalModerator):
    """The deployment of classifiers with weights."""

    async def __init__(self, spec: ModeratorSpec) -> None:
        logs.configure_replica(spec.logs)
        apply_proxy(spec.proxy)
        started_at = time.monotonic()
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="classifier")
        super().__init__(spec, thread, await asyncio.get_running_loop().run_in_executor(thread, _load, spec))
        names = [f"{each.backend} {each.checkpoint or ''}".strip() for each in spec.text + spec.images]
        logger.info("moderation with %s after %.1f s", ", ".join(names) or "nothing", time.monotonic() - started_at)

    async def check_health(self) -> None:
        """Raises RuntimeError if a new process would help: a classifier hangs, or classifies nothing any more."""
        for batcher in (self._texts, self._images):
            batcher.check_health(_MAX_BATCH_S, _MAX_FAULTS)


def _load(spec: ModeratorSpec) -> tuple[list[Any], list[Any]]:
    """Loads the classifiers in the thread that will use them, as torch's number of threads is per calling thread."""
    if any(classifier.backend not in WEIGHTLESS for classifier in spec.text + spec.images):
        from deployments.torch_process import set_up_torch

        set_up_torch(spec.threads)
    return (
        [pkgutil.resolve_name(TEXT_CLASSIFIERS[classifier.backend])(classifier) for classifier in spec.text],
        [pkgutil.resolve_name(IMAGE_CLASSIFIERS[classifier.backend])(classifier) for classifier in spec.images],
    )


def _combine(all_classifiers: Sequence[Any]) -> Any:
    """Returns a function that scores items with every classifier, of which the highest score of a category counts."""

    def classify(items: Sequence[str] | Sequence[Pixels]) -> list[Scores]:
        all_scores = [classifier.classify(items) for classifier in all_classifiers]
        return [highest([scores[index] for scores in all_scores]) for index in range(len(items))]

    return classify
