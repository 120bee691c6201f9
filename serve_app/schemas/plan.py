"""The resolved request: all that submission can decide."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deployments.contract.job import FPS, OutputFormat
from serve_app.inputs.geometry import MEGAPIXEL


@dataclass(frozen=True, slots=True)
class ModelDefaults:
    """How an endpoint has its requests done: by which model, and with what where a request has no say in it."""

    model: str = ""
    steps: int | None = None
    guidance: float | None = None
    instruction: str = ""
    """What the prompt begins with."""
    fps: int = FPS
    image_prompts: bool = False
    """Whether the model reads images as part of a prompt, where the endpoint takes any."""
    unsupported: frozenset[str] = frozenset()
    """Fields of requests that the model does not take."""
    one_image: bool = False
    """Whether the model makes one result of one input image alone."""
    demo: bool = False
    """Whether a bundled checkpoint does it, which knows coloured shapes only."""


@dataclass(frozen=True, slots=True)
class VideoPlan:
    """What only videos have: `seconds` of new ones are made. The others are as in VideoParams."""

    seconds: int
    audio: bool
    times: tuple[float, ...] = ()
    draft: bool = False
    enhance: str | None = None
    fps: int = FPS


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes in pixels. Without `width` and `height` the ratio is chosen later, on a canvas of `area` pixels.

    `guidance`, `guidance_interval`, `canny` and `transparent` are as in GenerationJob. `rewrite` lets a rewriter enrich
    the prompt first. A `structured` prompt may end with a layout; any other is plain text to its end. With `video`
    the result is a video.
    """

    prompt: str
    steps: int | None
    """None until `resolve`, where the request leaves them to the model."""
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
    video: VideoPlan | None = None
    negative_prompt: str = ""
    strength: float | None = None

    def resolve(self, defaults: ModelDefaults, input_pixels: int = 0) -> Plan:
        """With what was sent, and the defaults' own numbers for what the request leaves open."""
        return replace(
            self,
            input_pixels=input_pixels,
            prompt=f"{defaults.instruction} {self.prompt}".strip() if defaults.instruction else self.prompt,
            steps=defaults.steps if self.steps is None else self.steps,
            guidance=defaults.guidance if self.guidance is None else self.guidance,
            video=replace(self.video, fps=defaults.fps) if self.video else None,
        )

    @property
    def seconds(self) -> int:
        """What is made, as a multiple of one image or of one second of video."""
        return self.video.seconds if self.video else 1

    @property
    def work(self) -> float:
        """Compute units for fair sharing: megapixel-steps of images or of seconds of video; references count too."""
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
    audio: bool
    task: str = ""
    """Id of the one that made it."""
    references: tuple[str, ...] = ()
    times: tuple[float, ...] = ()
    start: str | None = None
