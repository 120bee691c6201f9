"""The diffusers backend: runs any diffusers pipeline, one call per batch, which the engine drives step by step.

Jobs that are encoded together and agree in size and settings share a call (static batching). Calls alternate between
steps, except for pipelines whose hooks keep state. A failed call is replaced by one call for each of its jobs, which
catches up: seeds make results repeatable.
"""

from __future__ import annotations

import logging
import tempfile
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Final

import torch

from deployments.backend import ContentFlagged, JobError, OutOfMemory
from deployments.backends.exclusive_autoencoder import make_autoencoders_exclusive
from deployments.backends.inputs import InputFetcher
from deployments.backends.pipeline_output import PipelineOutput
from deployments.backends.pipeline_run import PipelineRun, stop_before_steps
from deployments.backends.pipeline_signature import PipelineSignature
from deployments.contract import counts
from deployments.contract.events import Preview, for_clients
from deployments.contract.job import GenerationJob, Output
from deployments.contract.objects import ObjectStore
from deployments.engine.scheduler import MemoryLimit
from deployments.families.device_errors import translate_device_errors
from deployments.images import Pixels, fit, on_white
from deployments.lora.formats import DENOISERS, ENCODERS
from deployments.lora.segments import AdaptedLayers, AppliedAdapter
from deployments.lora.weights import AdapterCache, find_networks
from deployments.lru_cache import MB
from deployments.outputs import Outputs
from deployments.video.writer import Audio, VideoWriter

log = logging.getLogger(__name__)

_PIXELS_PER_TOKEN: Final = 256
_MAX_CALL_KEYS: Final = 1000
"""Call keys whose number of steps is remembered."""
_UNSAFE: Final = "Guardrail detected unsafe"
"""Text of the error by which the checker of Cosmos' pipelines refuses a prompt or a result."""


@dataclass(frozen=True, slots=True)
class PipelineJob:
    job: GenerationJob
    images: Mapping[str, bytes]
    adapter: AppliedAdapter | None


@dataclass(eq=False)
class PipelineCall:
    """A run with its adapter and its jobs. The run ends with the last state that refers to the call."""

    run: PipelineRun
    adapter: AppliedAdapter | None
    size: int
    """Number of jobs."""
    key: Hashable
    """Calls with equal keys take the same number of steps."""
    lock: Lock = field(default_factory=Lock)

    @property
    def failed(self) -> bool:
        return self.run.error is not None

    def __post_init__(self) -> None:
        weakref.finalize(self, self.run.abort)


class _CurrentCall:
    """The call in progress, of a pipeline whose calls can't alternate."""

    def __init__(self) -> None:
        self._run: PipelineRun | None = None
        self._call: weakref.ref[PipelineCall] | None = None

    def get(self) -> PipelineCall | None:
        """Returns the call in progress while a state refers to it."""
        return self._call() if self._call else None

    def start(self, call: PipelineCall) -> bool:
        """Makes `call` current. Returns whether the call before it was abandoned."""
        previous, self._run, self._call = self._run, call.run, weakref.ref(call)
        if previous is None or previous is call.run:
            return False
        previous.end()
        return True

    def end(self, call: PipelineCall) -> None:
        if call.run is self._run:
            self._run = self._call = None


@dataclass(slots=True, eq=False)
class PipelineState:
    """The `index`-th job of a call."""

    fetched: PipelineJob
    call: PipelineCall
    index: int
    done_steps: int = 0

    @property
    def job(self) -> GenerationJob:
        return self.fetched.job

    @property
    def key(self) -> Hashable:
        return self.job.request.guidance is not None, self.call.adapter is not None

    @property
    def tokens(self) -> int:
        frames = self.job.request.video.frames if self.job.request.video else 1
        return max(1, self.job.request.width * self.job.request.height * frames // _PIXELS_PER_TOKEN)

    @property
    def total_steps(self) -> int:
        return self.call.run.total_steps

    @property
    def steps_alike(self) -> int:
        return self.total_steps - self.done_steps


class DiffusersBackend:
    """Implements Backend[PipelineJob, PipelineState]."""

    def __init__(
        self,
        pipeline: Any,
        store: ObjectStore,
        *,
        pipeline_kwargs: Mapping[str, Any] | None = None,
        preview_decoder: Any = None,
        interleaves: bool = True,
        max_batch: int = 8,
        adapters_mb: int = 1024,
        threads: int | None = None,
        setup: Mapping[str, str] | None = None,
    ) -> None:
        """`pipeline_kwargs` are constants of every call. `preview_decoder` is an `AutoencoderTiny` for the pipeline's
        latents. `interleaves`: calls may alternate between steps; False for hooks that keep state of a call or move
        networks between devices, so that one call must end before the next starts."""
        pipeline.set_progress_bar_config(disable=True)
        self._pipeline = pipeline
        self._constants = dict(pipeline_kwargs or {})
        self._signature = PipelineSignature.from_pipeline(pipeline, self._constants)
        self._preview_decoder = preview_decoder
        self.interleaves = interleaves
        self._current = _CurrentCall()
        self._steps_taken: dict[Hashable, int] = {}
        """Steps of ended calls by key, for pipelines that don't know the number beforehand."""
        self._denoising, self._encoding = Lock(), Lock()
        """Held by the call that steps, or encodes, as adapters change the networks for it."""
        self._outputs, self._fetcher = Outputs(store), InputFetcher(store)
        denoisers = denoisers_of(pipeline)
        stop_before_steps(denoisers)
        make_autoencoders_exclusive(pipeline)
        self._denoiser_layers = AdaptedLayers(find_networks(pipeline, DENOISERS))
        self._encoder_layers = AdaptedLayers(find_networks(pipeline, ENCODERS))
        networks = find_networks(pipeline, (*DENOISERS, *ENCODERS))
        self._adapters = AdapterCache(networks, store, adapters_mb * MB) if denoisers else None
        self._limit = MemoryLimit(max_batch)
        self._threads = threads
        self.setup: Mapping[str, str] = dict(setup or {})

    @property
    def current_call(self) -> PipelineCall | None:
        return self._current.get()

    def get_call(self, state: PipelineState) -> PipelineCall:
        return state.call

    def call_key(self, prepared: PipelineJob) -> Hashable | None:
        return None if prepared.job.inputs.keys else _call_key(prepared)

    def counts(self) -> Mapping[str, float]:
        return counts.cache_counts("adapters", self._adapters.stats) if self._adapters else {}

    def fetch(self, job: GenerationJob) -> PipelineJob:
        self._signature.check(job)
        images = self._fetcher.fetch_all(job.inputs.keys)
        adapter = None
        if job.adapter is not None:
            if self._adapters is None:
                raise JobError("this model takes no tuned models")
            with self._errors():
                adapter = AppliedAdapter(self._adapters.get(job.adapter).layers, job.adapter.strength)
        return PipelineJob(job, images, adapter)

    def encode(self, fetched: Sequence[PipelineJob]) -> list[PipelineState | JobError]:
        batches: dict[Hashable, list[int]] = {}
        for index, each in enumerate(fetched):
            # Jobs with images get a call each.
            batches.setdefault(index if each.job.inputs.keys else _call_key(each), []).append(index)
        states: dict[int, PipelineState | JobError] = {}
        size = self._limit.size
        for members in (each[first : first + size] for each in batches.values() for first in range(0, len(each), size)):
            jobs = [fetched[index] for index in members]
            try:
                call = self._start(jobs)
            except JobError as error:
                if len(members) > 1:
                    raise RuntimeError(str(error)) from None  # tried again one by one
                states[members[0]] = error
                continue
            for position, index in enumerate(members):
                states[index] = PipelineState(fetched[index], call, position, call.run.done_steps)
        return [states[index] for index in range(len(fetched))]

    def step(self, states: Sequence[PipelineState]) -> None:
        call = states[0].call
        if call.failed:
            # One step of the new call: earlier steps follow in `finish`, so that no step takes longer than others.
            [state] = states
            state.call, state.index = call, _ = self._start([state.fetched]), 0
        if not call.run.started:
            self._prepare(call)
        try:
            if not call.run.ended:
                self._advance(call)
        except OutOfMemory as error:
            if call.size > 1 and not call.failed:  # each of the jobs may fit alone
                call.run.fail(error)
            raise
        for state in states:
            state.done_steps = call.run.done_steps

    def finish(self, state: PipelineState) -> Callable[[], Output]:
        if state.call.failed and state.call.size > 1:
            state.call, state.index = self._start([state.fetched]), 0
        call = state.call
        with call.lock:
            while not call.run.ended:
                self._advance(call)
        output = PipelineOutput(call.run.output)
        with translate_device_errors():
            pixels = output.pixels(state.index)
            if state.job.request.video is not None:
                sound = output.audio(self._pipeline, state.index)
                return partial(self._store_video, state.job, pixels[: state.job.request.video.frames], sound)
        layers = len(pixels) if pixels.ndim == 4 else 1
        strip = pixels.reshape(-1, *pixels.shape[-2:])  # stacks layers vertically
        if strip.shape[2] == 4 and state.job.request.output_format == "jpeg":
            strip = on_white(strip)
        image = fit(strip, state.job.request.width, state.job.request.height * layers, "smooth")
        return partial(self._outputs.store_image, state.job, image)

    def preview(self, state: PipelineState) -> Callable[[], Preview] | None:
        latents = state.call.run.latents
        if self._preview_decoder is None or latents is None:
            return None
        if latents.ndim == 3 and hasattr(self._pipeline, "_unpack_latents"):
            width, height = self._signature.size(state.job.request.width, state.job.request.height)
            latents = self._pipeline._unpack_latents(latents, height, width, self._pipeline.vae_scale_factor)
        if latents.ndim == 5:  # a video: its first frame
            latents = latents[:, :, 0]
        with translate_device_errors(), torch.no_grad():
            decoded = self._preview_decoder.decode(
                latents[state.index : state.index + 1].to(self._preview_decoder.dtype)
            )
        colours = (decoded.sample[0].float() / 2 + 0.5).clamp(0, 1).mul(255).round().to(torch.uint8)
        pixels = colours.permute(1, 2, 0).cpu().numpy()
        return partial(self._outputs.store_preview, state.job, pixels, state.done_steps, state.total_steps)

    def _start(self, jobs: Sequence[PipelineJob]) -> PipelineCall:
        """Returns a call that waits for its first step, or has not begun where calls can't alternate.

        Raises JobError for arguments that the pipeline refuses.
        """
        job, key = jobs[0].job, _call_key(jobs[0])
        arguments = self._constants | self._signature.arguments([each.job for each in jobs], jobs[0].images)
        expected = self._steps_taken.get(key)
        run = PipelineRun(self._pipeline, arguments, to_the_end=not self.interleaves, expected_steps=expected)
        if job.request.guidance is not None and self._signature.guidance is None:
            run.guide(job.request.guidance)
        call = PipelineCall(run, jobs[0].adapter, len(jobs), key)
        if self.interleaves:
            self._prepare(call)
        return call

    def _prepare(self, call: PipelineCall) -> None:
        """Runs up to the first step."""
        if not self.interleaves and self._current.start(call):
            self._pipeline.maybe_free_model_hooks()
        try:
            self._advance(call)
        except (ValueError, TypeError) as error:
            log.warning("the pipeline refuses a request", exc_info=True)
            raise JobError(f"the model refuses this request: {for_clients(str(error))}") from None

    def _advance(self, call: PipelineCall) -> None:
        with self._errors(call.size), ExitStack() as stack:
            for is_used, lock, layers in (
                (not call.run.is_prepared, self._encoding, self._encoder_layers),
                (call.run.is_denoising, self._denoising, self._denoiser_layers),
            ):
                if is_used:
                    stack.enter_context(lock)
                    if call.adapter is not None and layers.has_layers_of(call.adapter):
                        stack.enter_context(layers.applied_to_all(call.adapter))
            call.run.advance()
        if call.run.ended:
            self._limit.record_success(call.size)
            self._current.end(call)
            if call.run.has_sections:
                if len(self._steps_taken) >= _MAX_CALL_KEYS:
                    self._steps_taken.clear()
                self._steps_taken[call.key] = call.run.done_steps

    @contextmanager
    def _errors(self, size: int = 1) -> Iterator[None]:
        """Reduces the batch size after a failure, as not all pipelines take several jobs. What a pipeline refuses
        (ValueError, TypeError) says nothing about the size."""
        try:
            with translate_device_errors():
                yield
        except Exception as error:
            if _UNSAFE in str(error):
                raise ContentFlagged from None
            if not isinstance(error, (ValueError, TypeError)):
                self._limit.record_failure(size)
            if isinstance(error, OutOfMemory) and self._adapters is not None:
                self._adapters.clear()
            raise

    def _store_video(self, job: GenerationJob, pixels: Pixels, audio: Audio | None) -> Output:
        assert job.request.video is not None
        size = (job.request.width - job.request.width % 2, job.request.height - job.request.height % 2)
        with tempfile.TemporaryDirectory(prefix="video-") as folder:
            file = Path(folder) / "video.mp4"
            writer = VideoWriter(
                file,
                rendered=(pixels.shape[2], pixels.shape[1]),
                size=size,
                frames=len(pixels),
                audio=audio if job.request.video.audio else None,
                fps=job.request.video.fps,
                threads=self._threads,
            )
            writer.write(pixels)
            writer.close()
            return self._outputs.store_video(job, file, None, writer.samples)


def _call_key(fetched: PipelineJob) -> Hashable:
    """Returns all that a call depends on, except prompt, seed and images."""
    job = fetched.job
    adapter = (job.adapter.id, job.adapter.strength) if job.adapter else None
    video = (job.request.video.frames, job.request.video.fps, job.request.video.audio) if job.request.video else None
    return (
        job.request.width,
        job.request.height,
        job.request.steps,
        job.request.guidance,
        job.request.strength,
        bool(job.request.negative_prompt),
        video,
        adapter,
    )


def denoisers_of(pipeline: Any) -> list[torch.nn.Module]:
    """Returns the networks that take steps; some pipelines have one for each half of the steps."""
    return list(find_networks(pipeline, DENOISERS).values())
