"""Exclusive autoencoder: one call at a time, and decoding in tiles when memory runs out.

Some autoencoders keep features of earlier frames on the module while they encode or decode, and calls of a pipeline run
concurrently.
"""

from __future__ import annotations

import logging
from threading import Lock
from typing import Any

from torch import nn

from deployments.backend import OutOfMemory
from deployments.backends.pipeline_run import current_run
from deployments.families.device_errors import translate_device_errors

log = logging.getLogger(__name__)


class ExclusiveAutoencoder:
    """Replaces `encode` and `decode` of one module."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._lock = Lock()
        self._encode, self._decode = getattr(module, "encode", None), module.decode
        if self._encode is not None:
            module.encode = self.encode
        module.decode = self.decode

    def encode(self, *arguments: Any, **options: Any) -> Any:
        assert self._encode is not None
        with self._lock:
            return self._encode(*arguments, **options)

    def decode(self, *arguments: Any, **options: Any) -> Any:
        """Decodes, in tiles if the whole does not fit. If the tiles don't fit either, pauses the pipeline's call with
        OutOfMemory and tries again when it resumes, so that denoising is not lost."""
        try:
            with self._lock, translate_device_errors():
                return self._decode(*arguments, **options)
        except OutOfMemory as error:
            log.warning("decoding again, in tiles where the autoencoder has them: %s", f"{error}".partition("\n")[0])
        while True:
            try:
                return self._decode_in_tiles(*arguments, **options)
            except OutOfMemory as error:
                # Its frames hold tensors of the failed call.
                failure = error.with_traceback(None)
            run = current_run()
            if run is None:
                raise failure
            run.pause(failure)

    def _decode_in_tiles(self, *arguments: Any, **options: Any) -> Any:
        module = self._module
        tiles = getattr(module, "use_tiling", None)
        with self._lock, translate_device_errors():
            if tiles is not None:
                module.enable_tiling()
            try:
                return self._decode(*arguments, **options)
            finally:
                if tiles is not None:
                    module.use_tiling = tiles


def make_autoencoders_exclusive(pipeline: Any) -> None:
    """Makes every component of the pipeline that decodes exclusive."""
    for component in pipeline.components.values():
        if isinstance(component, nn.Module) and callable(getattr(component, "decode", None)):
            ExclusiveAutoencoder(component)
