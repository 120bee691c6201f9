"""Pipeline signature: maps requests to the arguments of a diffusers pipeline."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch

from deployments.backend import JobError
from deployments.backends.pipeline_run import call_body, frame_group
from deployments.contract.job import GenerationJob, InputKeys
from deployments.contract.model import Trial
from deployments.contract.pipelines import takes_several_images
from deployments.contract.request import ResolvedRequest, VideoParams
from deployments.images import open_image, stretch

_SPATIAL: Final = ("vae_scale_factor_spatial", "vae_spatial_compression_ratio", "vae_spatial_scale_factor")
PROBE_IMAGE: Final = "probe"
_EMPTY: Final = " "
"""A prompt without words, as an empty one has no tokens for some encoders."""


@dataclass(frozen=True, slots=True)
class PipelineSignature:
    """Parameters of a pipeline's `__call__` by their meaning here; None if the pipeline has no such parameter."""

    parameters: frozenset[str]
    guidance: str | None
    image: str | None
    mask: str | None
    frames: str | None
    fps: str | None
    audio: str | None
    """Switch for sound, of pipelines that make it only on request."""
    guider: Any = None
    """Component that guides in place of a parameter."""
    several_images: bool = False
    needs_image: bool = False
    """True when every call needs an image."""
    takes_negative_prompt: bool = True
    max_frames: int | None = None
    frame_group: int = 1
    multiple: int = 1
    """Pixels that the model divides both sides by."""
    output_type: str = "np"
    """`pt` leaves images on the device. Pipelines that don't leave all types to diffusers' processor interpret it on
    their own: they use another range of values, or leave out the safety flags."""

    @classmethod
    def from_pipeline(cls, pipeline: Any, constants: Mapping[str, Any] | None = None) -> PipelineSignature:
        """`pipeline` may be a class, whose multiple and guider are unknown. `constants` are arguments of every call."""
        parameters = inspect.signature(pipeline.__call__).parameters
        names = frozenset(parameters)
        pipeline_class = pipeline if inspect.isclass(pipeline) else type(pipeline)
        image = _first(names, "image", "images")
        guidance = _guidance(pipeline, parameters)
        cfg = parameters.get("true_cfg_scale")
        scale = (constants or {}).get("true_cfg_scale", cfg.default if cfg else 2)
        takes_negative_prompt = "negative_prompt" in names and (guidance == "true_cfg_scale" or (scale or 0) > 1)
        return cls(
            parameters=names,
            guidance=guidance,
            image=image,
            mask=_first(names, "mask_image", "mask"),
            frames=_first(names, "num_frames", "frames"),
            fps=_first(names, "frame_rate", "fps"),
            audio=_first(names, "sample_audio", "enable_sound"),
            guider=getattr(pipeline, "guider", None),
            several_images=takes_several_images(pipeline_class.__name__),
            needs_image=image is not None and parameters[image].default is inspect.Parameter.empty,
            takes_negative_prompt=takes_negative_prompt,
            max_frames=_config(pipeline, "motion_adapter").get("motion_max_seq_length"),
            frame_group=frame_group(pipeline),
            multiple=_multiple(pipeline),
            output_type=_output_type(pipeline_class),
        )

    def check(self, job: GenerationJob) -> None:
        """Raises JobError naming the parts of the job that the pipeline doesn't take."""
        unsupported = {
            "images": bool(job.inputs.references) and self.image is None,
            "second image": len(job.inputs.references) > 1 and not self.several_images,
            "mask": job.inputs.mask is not None and self.mask is None,
            "control image": job.inputs.control is not None and "control_image" not in self.parameters,
            "image prompt": job.inputs.image_prompt is not None,
            "layout": bool(job.request.layout),
            "edge thresholds": job.request.canny is not None,
            "transparent background": job.request.transparent,
            "negative prompt": bool(job.request.negative_prompt) and not self.takes_negative_prompt,
            "guidance": job.request.guidance is not None and self.guidance is None and self.guider is None,
            "strength": job.request.strength is not None and "strength" not in self.parameters,
            "frames": job.request.video is not None and self.frames is None,
        }
        missing = [name for name, is_missing in unsupported.items() if is_missing]
        if missing:
            raise JobError(f"this model takes no {' and no '.join(missing)}")
        if job.request.strength is not None and int(job.request.steps * job.request.strength) < 1:
            raise JobError(f"steps times strength must be at least 1, not {job.request.steps * job.request.strength:g}")
        if job.request.video is not None and self.max_frames is not None and job.request.video.frames > self.max_frames:
            raise JobError(f"this model makes at most {self.max_frames} frames, not {job.request.video.frames}")

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Returns the size of a call: both sides rounded up to `multiple`."""
        return _round_up(width, self.multiple), _round_up(height, self.multiple)

    def arguments(self, jobs: Sequence[GenerationJob], images: Mapping[str, bytes]) -> dict[str, Any]:
        """Returns the arguments of one call for `jobs`, which differ only in prompts and seeds. Only a single job may
        have images.

        Pipelines without parameters for the size work at the size of their images, and some that start from an image
        need it in the call's size: these images are resized.
        """
        job = jobs[0]
        generators = [torch.Generator("cpu").manual_seed(each.request.seed) for each in jobs]
        size = self.size(job.request.width, job.request.height)
        arguments: dict[str, Any] = {
            "prompt": _one_or_list([each.request.prompt for each in jobs]),
            "generator": _one_or_list(generators),
            "width": size[0],
            "height": size[1],
            "max_area": size[0] * size[1],
            "num_inference_steps": job.request.steps,
            "output_type": self.output_type,
        }
        if "negative_prompt" in self.parameters and (job.request.negative_prompt or self.guidance == "true_cfg_scale"):
            # True CFG is off without a negative prompt.
            arguments["negative_prompt"] = _one_or_list([each.request.negative_prompt or _EMPTY for each in jobs])
        if self.guidance is not None and job.request.guidance is not None:
            arguments[self.guidance] = job.request.guidance
        if job.request.strength is not None:
            arguments["strength"] = job.request.strength
        inputs = {key: open_image(data) for key, data in images.items()}
        if "strength" in self.parameters or not self.parameters.issuperset(("width", "height")):
            inputs = {key: stretch(image, (size[1], size[0])) for key, image in inputs.items()}
        if job.inputs.references and self.image is not None:
            references = [inputs[key] for key in job.inputs.references]
            arguments[self.image] = references if self.several_images else references[0]
        if job.inputs.mask is not None and self.mask is not None:
            arguments[self.mask] = inputs[job.inputs.mask].convert("L")
        if job.inputs.control is not None:
            arguments["control_image"] = inputs[job.inputs.control]
        if job.request.video is not None:
            # Video encoders take one frame and whole groups of frames; surplus frames are cut off later.
            arguments[self.frames or ""] = 1 + _round_up(job.request.video.frames - 1, self.frame_group)
            if self.fps is not None:
                arguments[self.fps] = float(job.request.video.fps)
            if self.audio is not None:
                arguments[self.audio] = job.request.video.audio
        return {name: value for name, value in arguments.items() if name in self.parameters}

    def probe_jobs(self, trial: Trial, prompts: Sequence[str], *, image: bool) -> list[GenerationJob]:
        """Returns jobs for the probe of a pipeline; with `image` they use the input `PROBE_IMAGE` wherever possible."""
        inputs = InputKeys()
        if image:
            inputs = InputKeys(
                references=(PROBE_IMAGE,),
                mask=PROBE_IMAGE if self.mask else None,
                control=PROBE_IMAGE if "control_image" in self.parameters else None,
            )
        return [
            GenerationJob(
                id="probe",
                attempt=1,
                request=ResolvedRequest(
                    prompt=prompt,
                    width=trial.width,
                    height=trial.height,
                    steps=trial.steps,
                    seed=seed,
                    output_format="mp4" if self.frames else "png",
                    strength=1.0 if image and "strength" in self.parameters else None,
                    video=VideoParams(frames=trial.frames) if self.frames else None,
                ),
                output_prefix="",
                inputs=inputs,
            )
            for seed, prompt in enumerate(prompts)
        ]


def _guidance(pipeline: Any, parameters: Mapping[str, inspect.Parameter]) -> str | None:
    """Returns the parameter through which guidance has an effect. Pipelines with both are distilled (`guidance_scale`
    is an input of the network, if that reads it), unless CFG is on by default."""
    cfg = parameters.get("true_cfg_scale")
    if cfg is not None and (
        "guidance_scale" not in parameters or (isinstance(cfg.default, (int, float)) and cfg.default > 1)
    ):
        return "true_cfg_scale"
    is_read = _config(pipeline, "transformer").get("guidance_embeds", True)
    if "guidance_scale" in parameters:
        return "guidance_scale" if cfg is None or is_read else None
    return "distilled_guidance_scale" if "distilled_guidance_scale" in parameters and is_read else None


def _config(pipeline: Any, component: str) -> Mapping[str, Any]:
    """Returns the configuration of a component; empty without one."""
    return getattr(getattr(pipeline, component, None), "config", {})


def _multiple(pipeline: Any) -> int:
    """Returns the pixels that one token of the denoiser covers in a row: those of a latent times its patch."""
    factors = (getattr(pipeline, name, None) for name in (*_SPATIAL, "vae_scale_factor"))
    spatial = next((int(each) for each in factors if isinstance(each, (int, float))), 1)
    config = _config(pipeline, "transformer")
    patch = config.get("patch_size") or config.get("all_patch_size") or 1
    side = int(patch if isinstance(patch, (int, float)) else patch[-1])
    pack = getattr(pipeline, "_pack_latents", None)
    if side == 1 and pack is not None and "patch_size" not in inspect.signature(pack).parameters:
        side = 2  # Flux packs four latents into a token
    return spatial * side


@cache
def _output_type(pipeline_class: type) -> str:
    nodes = [node for statement in call_body(pipeline_class) for node in ast.walk(statement)]
    converts = any(isinstance(node, ast.Attribute) and node.attr.startswith("postprocess") for node in nodes)
    has_own = any(isinstance(node, ast.Constant) and node.value == "np" for node in nodes)
    return "pt" if converts and not has_own else "np"


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _one_or_list(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _first(names: frozenset[str], *candidates: str) -> str | None:
    return next((name for name in candidates if name in names), None)
