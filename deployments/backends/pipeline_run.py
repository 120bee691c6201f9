"""Pipeline run: one call of a diffusers pipeline that stops after every denoising step.

The call has its own thread, which waits before the first step and after each one, so that the engine can report,
preview, cancel and alternate calls. Each run has its own schedulers and guiders, as these keep state between steps; all
runs share the pipeline's networks.
"""

from __future__ import annotations

import ast
import copy
import inspect
import logging
import textwrap
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, cast

from diffusers.guiders.guider_utils import BaseGuidance
from diffusers.schedulers.scheduling_utils import SchedulerMixin
from torch import Tensor, nn

from deployments.torch_process import wait_for_devices

log = logging.getLogger(__name__)

_CURRENT: Final = threading.local()


class _Aborted(BaseException):
    """Ends a call whose result is not needed any more."""


class PipelineRun:
    """A call of a pipeline, driven from one thread at a time.

    Most pipelines loop over the steps once, so that the run is denoised after `total_steps`. A pipeline with sections
    loops over the steps for each section, and does other work between them: only the end of the call ends its steps.
    """

    def __init__(
        self,
        pipeline: Any,
        arguments: Mapping[str, Any],
        *,
        to_the_end: bool = False,
        expected_steps: int | None = None,
    ) -> None:
        """`arguments` are those of the call. `to_the_end`: counts steps as remaining until the call ends, as for every
        pipeline with sections. `expected_steps` is the number of steps that such a call took before."""
        self.done_steps = 0
        """Steps taken, in all sections."""
        self.latents: Tensor | None = None
        """Latents after the last step, in the pipeline's own layout."""
        self.output: Any = None
        self.error: Exception | None = None
        self.has_sections = has_sections(type(pipeline))
        self.to_the_end = to_the_end or self.has_sections
        self._expected_steps = expected_steps
        self._section_steps = int(arguments.get("num_inference_steps", 1))
        self._frames = int(arguments.get("num_frames", arguments.get("frames", 1)))
        self._frame_group = frame_group(pipeline)
        self._pipeline = copy.copy(pipeline)
        for name, component in pipeline.components.items():
            if isinstance(component, SchedulerMixin):
                setattr(self._pipeline, name, cast(Any, type(component)).from_config(cast(Any, component).config))
            elif isinstance(component, BaseGuidance):
                setattr(self._pipeline, name, component.new())
        self._arguments = dict(arguments)
        self._steps_are_watched = False
        """True when the scheduler's `step` refers to this run, which would keep its result alive."""
        if "callback_on_step_end" in inspect.signature(pipeline.__call__).parameters:
            self._arguments["callback_on_step_end"] = self._after_step
        elif getattr(self._pipeline, "scheduler", None) is not None:
            self._steps_are_watched = True
            self._stop_after(self._pipeline.scheduler)
        self.is_prepared = False
        """True when prompts and images are encoded."""
        self._aborted = False
        self._pause: Exception | None = None
        self._resume, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._call, name="pipeline", daemon=True)

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    @property
    def ended(self) -> bool:
        """True when the call has an output or an error."""
        return self.output is not None or self.error is not None

    @property
    def total_steps(self) -> int:
        """Steps of the whole call: exact, or an estimate for a pipeline with sections."""
        if not self.to_the_end:
            return max(1, self._section_steps, self.done_steps)
        if self.output is not None:
            return self.done_steps
        return max(self._expected_steps or self._section_steps * self._sections, self.done_steps + 1)

    @property
    def is_denoising(self) -> bool:
        """True when the networks that take steps run until the next stop."""
        return self.is_prepared and not self.ended and (self.to_the_end or self.done_steps < self.total_steps)

    def advance(self) -> None:
        """Runs to the next stop: before the first step, after a step, or at the end of the call.

        Raises the error of the pipeline, or the one that the call paused with; the next `advance` resumes the call.
        """
        if self.started:
            self._resume.release()
        else:
            self._thread.start()
        self._stopped.acquire()
        if self._pause is not None:
            pause, self._pause = self._pause, None
            raise pause
        if self.error is not None:
            raise self.error

    def abort(self) -> None:
        """Ends the call at its present stop, without waiting."""
        self._aborted = True
        self._resume.release()

    def fail(self, error: Exception) -> None:
        """Ends the call at its present stop with `error`."""
        self.end()
        self.error = error.with_traceback(None)

    def end(self) -> None:
        """Aborts the call and waits until its thread has left the pipeline."""
        self.abort()
        if self.started:
            self._thread.join()

    def before_forward(self) -> None:
        """Stops before the first step. Called by the networks that take steps."""
        if not self.is_prepared:
            self.is_prepared = True
            self._section_steps = max(1, getattr(self._pipeline, "_num_timesteps", None) or self._section_steps)
            self._stop()

    def pause(self, error: Exception) -> None:
        """Stops the call here and makes `advance` raise `error`. Called from within the call."""
        self._pause = error
        self._stop()

    def guide(self, scale: float) -> None:
        """Sets the guidance of a pipeline's guider, before the call starts."""
        self._pipeline.guider = self._pipeline.guider.new(guidance_scale=scale)

    def skip_steps(self) -> None:
        """Skips the remaining steps, if the pipeline can be interrupted."""
        self._pipeline._interrupt = True

    @property
    def _sections(self) -> int:
        """Estimates the number of sections from the frames of the job and of the latents in a step."""
        if self.latents is None or self.latents.ndim != 5:
            return 1
        window = (self.latents.shape[2] - 1) * self._frame_group + 1
        return max(1, -(-self._frames // window))

    def _call(self) -> None:
        _CURRENT.run = self
        try:
            output = self._pipeline(**self._arguments)
            wait_for_devices()
            if output is None:
                raise RuntimeError("the pipeline returned nothing")
            self.output = output
            self.done_steps = max(1, self.done_steps if self.to_the_end else self.total_steps)
        except _Aborted:
            pass
        except Exception as error:
            log.debug("a call of a pipeline failed", exc_info=error)
            # Its frames hold the failed call's tensors.
            self.error = error.with_traceback(None)
        finally:
            self._arguments.clear()
            if self._steps_are_watched:
                vars(self._pipeline.scheduler).pop("step", None)
            self._stopped.release()

    def _after_step(self, pipeline: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        self.is_prepared = True
        self.done_steps += 1
        self.latents = tensors.get("latents")
        self._stop()
        return tensors

    def _stop_after(self, scheduler: Any) -> None:
        """Stops after every step of a pipeline without a callback."""
        step = scheduler.step

        def step_and_stop(*arguments: Any, **options: Any) -> Any:
            result = step(*arguments, **options)
            self._after_step(self._pipeline, self.done_steps, None, {})
            return result

        scheduler.step = step_and_stop

    def _stop(self) -> None:
        wait_for_devices()
        self._stopped.release()
        self._resume.acquire()
        if self._aborted:
            raise _Aborted


def current_run() -> PipelineRun | None:
    """Returns the run that the present thread belongs to."""
    return getattr(_CURRENT, "run", None)


def stop_before_steps(denoisers: list[nn.Module]) -> None:
    """Stops the runs of a pipeline before the first forward of any of `denoisers`."""

    def hook(module: nn.Module, inputs: Any) -> None:
        run = current_run()
        if run is not None:
            run.before_forward()

    for denoiser in denoisers:
        denoiser.register_forward_pre_hook(hook)


def frame_group(pipeline: Any) -> int:
    """Returns the frames that one latent frame stands for, after the first; 1 for images. `pipeline` may be a class."""
    names = ("vae_scale_factor_temporal", "vae_temporal_compression_ratio", "vae_temporal_scale_factor")
    found = (getattr(pipeline, name, None) for name in names)
    return next((int(each) for each in found if isinstance(each, (int, float))), 1)


@cache
def has_sections(pipeline_class: type) -> bool:
    """Returns whether a pipeline takes its steps in nested loops, such as one over sections."""
    return max(_loops_around_steps(statement, 0) for statement in call_body(pipeline_class)) > 1


def call_body(pipeline_class: type) -> list[ast.stmt]:
    [function] = ast.parse(textwrap.dedent(inspect.getsource(pipeline_class.__call__))).body
    assert isinstance(function, ast.FunctionDef)
    return function.body


def _loops_around_steps(node: ast.AST, loops: int) -> int:
    """Returns the largest number of loops around a call of the step callback or of the scheduler's `step`."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("callback_on_step_end", "scheduler.step")):
        return loops
    inner = loops + isinstance(node, (ast.For, ast.While))
    return max((_loops_around_steps(child, inner) for child in ast.iter_child_nodes(node)), default=0)
