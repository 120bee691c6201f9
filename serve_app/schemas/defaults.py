"""Values that a request leaves to its endpoint's model, or to the draft that it enhances."""

from __future__ import annotations

from dataclasses import dataclass

from deployments.contract.job import InputKeys
from deployments.contract.request import FPS, OutputFormat, ResolvedRequest, VideoParams
from serve_app.inputs.geometry import Size


@dataclass(frozen=True, slots=True)
class ModelDefaults:
    """Model of an endpoint, and its values for the fields that a request leaves open."""

    model: str = ""
    steps: int | None = None
    guidance: float | None = None
    instruction: str = ""
    """Text that every prompt begins with."""
    fps: int = FPS
    image_prompts: bool = False
    """True if the model reads images as part of a prompt."""
    unsupported: frozenset[str] = frozenset()
    """Fields of requests that the model does not take."""
    one_image: bool = False
    """True if the model takes a single input image."""
    demo: bool = False
    """True for a bundled checkpoint, which knows coloured shapes only."""

    def resolve(
        self,
        *,
        prompt: str,
        seed: int,
        output_format: OutputFormat,
        size: Size,
        area: int | None = None,
        steps: int | None = None,
        guidance: float | None = None,
    ) -> ResolvedRequest:
        """Returns the request with the defaults in place of None. `area` defaults to that of `size`."""
        steps = self.steps if steps is None else steps
        assert steps is not None, "the catalog gives steps to every model whose requests may leave them out"
        return ResolvedRequest(
            prompt=f"{self.instruction} {prompt}".strip() if self.instruction else prompt,
            width=size.width,
            height=size.height,
            area=size.area if area is None else area,
            steps=steps,
            seed=seed,
            output_format=output_format,
            guidance=self.guidance if guidance is None else guidance,
        )

    def video(self, seconds: int, *, audio: bool, times: tuple[float, ...] = (), draft: bool = False) -> VideoParams:
        return VideoParams(frames=self.fps * seconds, audio=audio, times=times, draft=draft, fps=self.fps)


@dataclass(frozen=True, slots=True)
class Draft:
    """A finished draft: the fields of the video that enhances it, and the inputs, its latents among them."""

    task: str
    """Id of the task that made the draft."""
    prompt: str
    seed: int
    seconds: int
    width: int
    height: int
    audio: bool
    inputs: InputKeys
    times: tuple[float, ...] = ()
