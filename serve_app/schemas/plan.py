"""The resolved request: all that submission can decide."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deployments.contract.job import OutputFormat
from serve_app.inputs.geometry import MEGAPIXEL


@dataclass(frozen=True, slots=True)
class ModelDefaults:
    """How an endpoint has its requests done: by which model, and with what where a request has no say in it."""

    model: str = ""
    steps: int | None = None
    guidance: float | None = None
    instruction: str = ""
    """What the prompt begins with."""
    image_prompts: bool = False
    """Whether the model reads images as part of a prompt, where the endpoint takes any."""


@dataclass(frozen=True, slots=True)
class ClipPlan:
    """What only videos have: `seconds` of new ones are made. The others are as in Clip."""

    seconds: int
    sound: bool
    times: tuple[float, ...] = ()
    draft: bool = False
    enhance: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes in pixels. Without `width` and `height` the ratio is chosen later, on a canvas of `area` pixels.

    `guidance`, `guidance_interval`, `canny` and `transparent` are as in GenerationJob. `rewrite` lets a rewriter enrich
    the prompt first. A `structured` prompt may end with a layout; any other is plain text to its end. `clip` makes it a
    plan for a video.
    """

    prompt: str
    steps: int | None
    """None until `completed`, where the request leaves them to the model."""
    seed: int
    output_format: OutputFormat
    area: int
    width: int | None = None
    height: int | None = None
    input_pixels: int = 0
    """Of what was sent, however the model gets it."""
    guidance: float | None = None
    guidance_interval: float | None = None
    canny: tuple[int, int] | None = None
    transparent: bool = False
    rewrite: bool = False
    structured: bool = False
    clip: ClipPlan | None = None

    def completed(self, defaults: ModelDefaults, input_pixels: int = 0) -> Plan:
        """With what was sent, and the defaults's own figures for what the request leaves open."""
        return replace(
            self,
            input_pixels=input_pixels,
            prompt=f"{defaults.instruction} {self.prompt}".strip() if defaults.instruction else self.prompt,
            steps=defaults.steps if self.steps is None else self.steps,
            guidance=defaults.guidance if self.guidance is None else self.guidance,
        )

    @property
    def seconds(self) -> int:
        """What is made, as a multiple of one picture or of one second of video."""
        return self.clip.seconds if self.clip else 1

    @property
    def work(self) -> float:
        """Compute units for fair sharing: megapixel-steps of pictures or of seconds of video; references count too."""
        return (self.area * self.seconds + self.input_pixels) / MEGAPIXEL * (self.steps or 1)


@dataclass(frozen=True, slots=True)
class Draft:
    """What a video that is made of it takes over. `width` and `height` are the draft's own, `key` is its latents'.

    `references`, each with its time, and `start` are the objects that the draft was made of.
    """

    key: str
    prompt: str
    seed: int
    seconds: int
    width: int
    height: int
    sound: bool
    task: str = ""
    """Id of the one that made it."""
    references: tuple[str, ...] = ()
    times: tuple[float, ...] = ()
    start: str | None = None
