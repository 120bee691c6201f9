"""Pipeline run: one call of a diffusers pipeline that stops after every denoising step.

The call has a thread of its own, which waits before its first step and after each one, so that the engine can report,
preview, cancel and interleave calls. Each run has a scheduler of its own; all share the pipeline's networks.
"""

from __future__ import annotations

import copy
import inspect
import logging
import threading
from collections.abc import Mapping
from typing import Any, Final

from torch import Tensor, nn

log = logging.getLogger(__name__)

_CURRENT: Final = threading.local()


class _Aborted(BaseException):
    """Ends a call whose result nobody wants."""


class PipelineRun:
    """Used from one thread at a time."""

    def __init__(self, pipeline: Any, arguments: Mapping[str, Any]) -> None:
        """`arguments` are those of the call."""
        self.done_steps = 0
        self.total_steps = int(arguments.get("num_inference_steps", 1))
        """Those that the scheduler takes, once the run has stopped before its first step."""
        self.latents: Tensor | None = None
        """After the last step, in the pipeline's own layout."""
        self.output: Any = None
        """What the call returned."""
        self.error: Exception | None = None
        self._pipeline = copy.copy(pipeline)
        scheduler = getattr(pipeline, "scheduler", None)
        if scheduler is not None:
            self._pipeline.scheduler = type(scheduler).from_config(scheduler.config)
        self._arguments = dict(arguments)
        if "callback_on_step_end" in inspect.signature(pipeline.__call__).parameters:
            self._arguments["callback_on_step_end"] = self._after_step
        elif scheduler is not None:
            self._stop_after(self._pipeline.scheduler)
        self._prepared = False
        self._aborted = False
        self._resume, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._call, name="pipeline", daemon=True)

    @property
    def ended(self) -> bool:
        """Whether the call is over: it has an output or an error."""
        return self.output is not None or self.error is not None

    @property
    def is_denoising(self) -> bool:
        """Whether the networks that take steps run until the next stop."""
        return self._prepared and self.done_steps < self.total_steps

    def advance(self) -> None:
        """Runs on to the next stop: before the first step, after a step, or the end of the call. Raises what the
        pipeline raises."""
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._resume.release()
        self._stopped.acquire()
        if self.error is not None:
            raise self.error

    def abort(self) -> None:
        """Ends the call at its present stop."""
        self._aborted = True
        self._resume.release()

    def before_forward(self) -> None:
        """Stops before the first step. The networks that take steps call it."""
        if not self._prepared:
            self._prepared = True
            self.total_steps = max(1, getattr(self._pipeline, "_num_timesteps", None) or self.total_steps)
            self._stop()

    def _call(self) -> None:
        _CURRENT.run = self
        try:
            self.output = self._pipeline(**self._arguments)
        except _Aborted:
            pass
        except Exception as error:
            log.debug("a call of a pipeline failed", exc_info=error)
            # Its frames hold the failed call's tensors.
            self.error = error.with_traceback(None)
        finally:
            if self.output is not None:
                self.done_steps = self.total_steps
            self._arguments.clear()
            self._stopped.release()

    def _after_step(self, pipeline: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        self._prepared = True
        self.done_steps = step + 1
        self.total_steps = max(self.total_steps, self.done_steps)
        self.latents = tensors.get("latents")
        self._stop()
        return tensors

    def _stop_after(self, scheduler: Any) -> None:
        """Stops behind every step of a pipeline without a callback."""
        step = scheduler.step

        def step_and_stop(*arguments: Any, **options: Any) -> Any:
            result = step(*arguments, **options)
            self._after_step(self._pipeline, self.done_steps, None, {})
            return result

        scheduler.step = step_and_stop

    def _stop(self) -> None:
        self._stopped.release()
        self._resume.acquire()
        if self._aborted:
            raise _Aborted


def stop_before_steps(denoisers: list[nn.Module]) -> None:
    """Has the runs of a pipeline stop before the first forward of any of `denoisers`."""

    def hook(module: nn.Module, inputs: Any) -> None:
        run = getattr(_CURRENT, "run", None)
        if run is not None:
            run.before_forward()

    for denoiser in denoisers:
        denoiser.register_forward_pre_hook(hook)
