"""Pipeline probe: a call by which a pipeline proves at load that it makes something on this machine."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from deployments.backend import ContentFlagged, DeviceBroken, OutOfMemory
from deployments.backends.pipeline_output import PipelineOutput
from deployments.backends.pipeline_run import PipelineRun
from deployments.backends.pipeline_signature import PipelineSignature
from deployments.contract.model import Trial
from deployments.families.device_errors import translate_device_errors

log = logging.getLogger(__name__)

_PROMPTS: Final = (
    "a grey square",
    "a grey square on a table beside the window, in the first light of a winter morning",
)
"""They differ in length, so that attention has a mask, which not all of its backends take."""
_STEPS_TAKEN: Final = 2


def probe_pipeline(pipeline: Any, trial: Trial, constants: Mapping[str, Any]) -> bool:
    """Calls the pipeline as jobs will, and looks at what it makes. Returns whether it takes several prompts at once.

    Tries two prompts, then one, then one with an image. Raises what the last of these raised: whatever the pipeline
    does, or NotFinite where its result holds nothing, or numbers that are none.
    """
    signature = PipelineSignature.from_pipeline(pipeline)
    attempts = [] if signature.needs_image else [(_PROMPTS, False), (_PROMPTS[:1], False)]
    attempts += [(_PROMPTS[:1], True)] if signature.image else []
    failure: Exception | None = None
    takes_several = False
    for prompts, image in attempts:
        arguments = dict(constants) | signature.probe_arguments(trial, prompts, image=image)
        try:
            with translate_device_errors():
                _call(pipeline, arguments, len(prompts))
        except DeviceBroken:
            raise
        except Exception as error:  # pipelines raise what they like
            failure = error.with_traceback(None)
            takes_several |= isinstance(error, OutOfMemory)  # the batch limit finds out how many
            pipeline.maybe_free_model_hooks()
            log.debug("the pipeline does not take %d prompts, image: %s", len(prompts), image, exc_info=failure)
            continue
        return takes_several or len(prompts) > 1
    assert failure is not None
    raise failure


def _call(pipeline: Any, arguments: Mapping[str, Any], prompts: int) -> None:
    run = PipelineRun(pipeline, arguments)
    while not run.ended:
        run.advance()
        if run.done_steps >= _STEPS_TAKEN:
            run.skip_steps()
    output = PipelineOutput(run.output)
    for index in range(prompts):
        try:
            output.pixels(index)
        except ContentFlagged:
            log.info("the pipeline's safety checker withholds what it is tried with")
