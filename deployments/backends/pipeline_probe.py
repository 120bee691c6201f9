"""Pipeline probe: calls at load time that prove that a pipeline works on this machine."""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from PIL import Image

from deployments.backend import ContentFlagged, DeviceBroken, OutOfMemory
from deployments.backends.pipeline_output import PipelineOutput
from deployments.backends.pipeline_run import PipelineRun
from deployments.backends.pipeline_signature import PROBE_IMAGE, PipelineSignature
from deployments.contract.model import Trial
from deployments.families.device_errors import translate_device_errors
from deployments.images import Pixels

log = logging.getLogger(__name__)

_PROMPTS: Final = (
    "a grey square",
    "a grey square on a table beside the window, in the first light of a winter morning",
)
"""Prompts of different length, so that attention gets a mask, which not all backends of attention take."""
_STEPS_TAKEN: Final = 2
_MAX_DIFFERENCE: Final = 1.5
"""Mean difference, of 255, up to which a result in a batch equals that of its prompt alone."""


def probe_pipeline(pipeline: Any, trial: Trial, constants: Mapping[str, Any]) -> bool:
    """Calls the pipeline as jobs will, and checks its results. Returns whether it takes several prompts at once.

    Tries two prompts, then one, then one with an image. If all fail, raises the error of the last: any error of the
    pipeline, or NotFinite for an empty result, or one with NaN or infinity.
    """
    probe = _Probe(pipeline, trial, constants)
    attempts = [] if probe.signature.needs_image else [(_PROMPTS, False), (_PROMPTS[:1], False)]
    attempts += [(_PROMPTS[:1], True)] if probe.signature.image else []
    failure: Exception | None = None
    takes_several = False
    for prompts, image in attempts:
        try:
            with translate_device_errors():
                first = probe.call(prompts, image=image)
                if len(prompts) == 1:
                    return takes_several
                return _are_alike(first, probe.call(prompts[:1], image=image))
        except DeviceBroken:
            raise
        except Exception as error:  # pipelines raise any type
            failure = error.with_traceback(None)
            takes_several |= isinstance(error, OutOfMemory)  # the batch limit finds out how many
            pipeline.maybe_free_model_hooks()
            log.debug("the pipeline does not take %d prompts, image: %s", len(prompts), image, exc_info=failure)
    assert failure is not None
    raise failure


class _Probe:
    def __init__(self, pipeline: Any, trial: Trial, constants: Mapping[str, Any]) -> None:
        self.signature = PipelineSignature.from_pipeline(pipeline, constants)
        self._pipeline = pipeline
        self._trial = trial
        self._constants = constants
        buffer = io.BytesIO()
        # Its ratio differs from the result's, as clients' images do.
        Image.new("RGB", (trial.width * 3 // 2, trial.height), "grey").save(buffer, "PNG")
        self._image = buffer.getvalue()

    def call(self, prompts: Sequence[str], *, image: bool) -> Pixels | None:
        """Returns the result of the first prompt; None where the pipeline's safety checker withholds it."""
        jobs = self.signature.probe_jobs(self._trial, prompts, image=image)
        arguments = self.signature.arguments(jobs, {PROBE_IMAGE: self._image} if image else {})
        run = PipelineRun(self._pipeline, dict(self._constants) | arguments)
        while not run.ended:
            run.advance()
            if run.done_steps >= _STEPS_TAKEN:
                run.skip_steps()
        output, results = PipelineOutput(run.output), list[Pixels | None]()
        for index in range(len(prompts)):
            try:
                results.append(output.pixels(index))
            except ContentFlagged:
                results.append(None)
        return results[0]


def _are_alike(in_batch: Pixels | None, solo: Pixels | None) -> bool:
    """Returns whether a prompt gives the same result in a batch. Some pipelines pad without a mask."""
    if in_batch is None or solo is None:
        return True
    alike = float(np.abs(in_batch.astype(np.int16) - solo).mean()) <= _MAX_DIFFERENCE
    if not alike:
        log.info("the pipeline gets one prompt at a time: its results differ in a batch")
    return alike
