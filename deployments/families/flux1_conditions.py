"""Conditions of Flux1 beside text: references, an image with a mask, edges; and its latents.

Each model has a reader: a function that turns a job's images into inputs of the transformer. Readers also draw the
noise, since the order of a pipeline's random numbers is part of the meaning of a seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from diffusers.pipelines.flux.pipeline_flux_kontext import PREFERRED_KONTEXT_RESOLUTIONS
from PIL import Image
from torch import Tensor

from deployments.backend import JobError
from deployments.families.canvas import Canvas, canvas_for
from deployments.families.conditioning import PreparedRequest, ReferenceCache
from deployments.families.flux import TOKEN
from deployments.families.state import draw_noise
from deployments.images import Backdrop, open_image, stretch

CELL = 8
"""Pixels per side of a latent cell."""


class Latents:
    """The autoencoder, with latents scaled for the transformer."""

    def __init__(self, vae: Any, device: torch.device) -> None:
        """`vae` is an `AutoencoderKL`, on `device`."""
        self._vae = vae
        self._device = device
        self.channels = int(vae.config.latent_channels)

    def noise(self, grid: tuple[int, int], generator: torch.Generator) -> Tensor:
        """Returns noise (1, C, 2 rows, 2 columns) float32 for a grid of tokens."""
        rows, columns = grid
        return draw_noise((1, self.channels, 2 * rows, 2 * columns), generator, self._device)

    def mean(self, image: Tensor) -> Tensor:
        """Encodes an image (1, 3, H, W) in [-1, 1] to latents (1, C, H/8, W/8), in the autoencoder's precision."""
        return self._scale(self._posterior(image).mean)

    def sample(self, image: Tensor, generator: torch.Generator) -> Tensor:
        """Encodes an image like `mean`, and adds noise of the encoder's standard deviation."""
        posterior = self._posterior(image)
        rows, columns = posterior.mean.shape[-2:]
        noise = self.noise((rows // 2, columns // 2), generator).to(posterior.mean.dtype)
        return self._scale(posterior.mean + posterior.std * noise)

    def decode(self, latents: Tensor) -> Tensor:
        """Decodes latents (1, C, h, w) to an image (1, 3, 8h, 8w) in [0, 1], float32."""
        config = self._vae.config
        # Convolutions round differently where channels lie together in memory, as they do after `pixel_shuffle`.
        latents = latents.contiguous().to(self._vae.dtype) / config.scaling_factor + config.shift_factor
        image = self._vae.decode(latents, return_dict=False)[0]
        return (image * 0.5 + 0.5).clamp(0, 1).float()

    def _posterior(self, image: Tensor) -> Any:
        return self._vae.encode(image.to(self._device, self._vae.dtype)).latent_dist

    def _scale(self, latents: Tensor) -> Tensor:
        return (latents - self._vae.config.shift_factor) * self._vae.config.scaling_factor


def as_tensor(image: Image.Image) -> Tensor:
    """Converts an RGB image to (1, 3, H, W) in [-1, 1], a grey one to (1, 1, H, W) in [0, 1]; float32."""
    pixels = torch.from_numpy(np.array(image).astype(np.float32) / 255.0)
    if pixels.ndim == 2:
        return pixels[None, None]
    # The batch axis comes first, or the strides would not say that channels are innermost, which decides the order of
    # sums.
    return 2.0 * pixels[None].permute(0, 3, 1, 2) - 1.0


def to_tokens(latents: Tensor) -> Tensor:
    """Converts (1, C, h, w) to tokens (1, h/2 x w/2, 4C), row by row."""
    return F.pixel_unshuffle(latents, 2).flatten(2).transpose(1, 2)


def from_grid(tokens: Tensor) -> Tensor:
    """Converts (1, 4C, rows, columns) to latents (1, C, 2 rows, 2 columns)."""
    return F.pixel_shuffle(tokens, 2)


def grid_ids(rows: int, columns: int, image: int = 0) -> Tensor:
    """Returns position ids (image, row, column) of one image's tokens, (rows x columns, 3) float32, row by row."""
    return torch.cartesian_prod(torch.tensor([image]), torch.arange(rows), torch.arange(columns)).float()


MAX_REFERENCES = 4

CHANNELS, REFERENCES = "channels", "references"
"""Names in `Conditioning.per`: channels added to every image token, and tokens that follow those of the image."""


@dataclass(frozen=True, slots=True)
class Conditioning:
    """Inputs of the transformer that a reader makes from a job."""

    noise: Tensor
    """(1, C, h, w) float32."""
    per: dict[str, Tensor] = field(default_factory=dict)
    """CHANNELS (1, N, K) or REFERENCES (1, M, 4C), in the autoencoder's precision."""
    ids: tuple[Tensor, ...] = ()
    """Position ids of the REFERENCES, (M_k, 3) each."""
    backdrop: Backdrop | None = None


InputName: TypeAlias = Literal["references", "mask", "control"]


@dataclass(frozen=True, slots=True)
class ReaderInput:
    request: PreparedRequest
    canvas: Canvas
    latents: Latents
    references: ReferenceCache[Tensor]
    generator: torch.Generator
    """Random numbers of the job."""
    render_side: int | None
    """Pixels; None for full size."""


Reader: TypeAlias = Callable[[ReaderInput], Conditioning]
"""Raises JobError."""


@dataclass(frozen=True, slots=True)
class Condition:
    read: Reader
    takes: frozenset[InputName]
    """Inputs that `read` uses; jobs with others are refused."""
    guidance: float
    """Default of the stock pipeline."""


def read_nothing(inputs: ReaderInput) -> Conditioning:
    return Conditioning(inputs.latents.noise(inputs.canvas.grid, inputs.generator))


def read_references(inputs: ReaderInput) -> Conditioning:
    """Kontext: up to 4 references as further tokens; without any, text to image.

    Reference k = 1, 2, ... has the position ids (k, row, column); the new image has 0. With one reference this is the
    stock pipeline. With several it is the rule of the Kontext paper (arXiv:2506.15742, section 3), which the stock
    pipeline leaves out. A reference is resized to a resolution that Kontext was trained on, or with `render_side` to a
    canvas like the new image.
    """
    noise = inputs.latents.noise(inputs.canvas.grid, inputs.generator)
    references = inputs.references.encode(
        inputs.request,
        lambda image, solo: inputs.latents.mean(as_tensor(_resize_reference(image, inputs.render_side))),
    )
    if not references:
        return Conditioning(noise)
    grids = [(latents.shape[-2] // 2, latents.shape[-1] // 2) for latents in references]
    return Conditioning(
        noise,
        per={REFERENCES: torch.cat([to_tokens(latents) for latents in references], dim=1)},
        ids=tuple(grid_ids(*grid, image=k) for k, grid in enumerate(grids, start=1)),
    )


def read_mask(inputs: ReaderInput) -> Conditioning:
    """Fill: the image without its masked part, and the mask, 8 x 8 pixels of it to a latent cell.

    White (128 and up) is repainted. A job with neither image nor mask has everything repainted.
    """
    canvas, latents, generator = inputs.canvas, inputs.latents, inputs.generator
    image, mask, backdrop = _masked_image(inputs.request)
    pixels = as_tensor(_fit_to_canvas(image, canvas, "edge"))
    repaint = (as_tensor(_fit_to_canvas(mask, canvas, "edge")) >= 0.5).float()
    # The stock pipeline encodes the whole image first and multiplies it by 0. Only the noise of that encoding, drawn
    # before that of the image, has an effect.
    latents.noise(canvas.grid, generator)
    noise = latents.noise(canvas.grid, generator)
    masked_image = to_tokens(latents.sample(pixels * (1 - repaint), generator))
    cells = to_tokens(F.pixel_unshuffle(repaint, CELL)).to(masked_image)
    return Conditioning(noise, per={CHANNELS: torch.cat([masked_image, cells], dim=2)}, backdrop=backdrop)


def read_edges(inputs: ReaderInput) -> Conditioning:
    """Canny: white edges on black, found in the control image or taken from it as they are.

    Edges are found in the image's final size, as thresholds are per pixel. Without a control image there are none.
    """
    request, canvas, latents, generator = inputs.request, inputs.canvas, inputs.latents, inputs.generator
    if request.control is None:
        control = Image.new("RGB", (canvas.frame[1], canvas.frame[0]))
    else:
        control = stretch(open_image(request.control), canvas.frame)
        if request.job.request.canny is not None:
            control = Image.fromarray(cv2.Canny(np.array(control), *request.job.request.canny)).convert("RGB")
    edges = to_tokens(latents.sample(as_tensor(_fit_to_canvas(control, canvas, "constant")), generator))
    return Conditioning(latents.noise(canvas.grid, generator), per={CHANNELS: edges})


CONDITIONS = {
    "FluxPipeline": Condition(read_nothing, frozenset(), guidance=3.5),
    "FluxKontextPipeline": Condition(read_references, frozenset({"references"}), guidance=3.5),
    "FluxFillPipeline": Condition(read_mask, frozenset({"references", "mask"}), guidance=30.0),
    "FluxControlPipeline": Condition(read_edges, frozenset({"control"}), guidance=3.5),
}
"""Conditions by the pipeline class in a checkpoint's index."""


def _masked_image(request: PreparedRequest) -> tuple[Image.Image, Image.Image, Backdrop | None]:
    """Returns a Fill job's image (RGB) and mask (grey), of equal size, and the backdrop of its result. Raises
    JobError."""
    size = (request.job.request.width, request.job.request.height)
    match request.references, request.mask:
        case (), None:
            return Image.new("RGB", size), Image.new("L", size, 255), None
        case (data,), bytes(mask_data):
            image, mask = open_image(data), open_image(mask_data).convert("L")
        case _:
            raise JobError("this model takes one image together with a mask")
    if image.size != mask.size:
        raise JobError("the mask must have the size of the image")
    full = (request.job.request.height, request.job.request.width)
    backdrop = Backdrop(np.array(stretch(image, full)), np.array(stretch(mask, full)) >= 128)
    return image, mask, backdrop


def _resize_reference(image: Image.Image, render_side: int | None) -> Image.Image:
    """Resizes a reference to the resolution with the nearest ratio that Kontext was trained on, about a megapixel."""
    if render_side is not None:
        return stretch(image, canvas_for(*image.size, TOKEN, render_side).size)
    ratio = image.width / image.height
    _, width, height = min((abs(ratio - w / h), w, h) for w, h in PREFERRED_KONTEXT_RESOLUTIONS)
    return stretch(image, (height, width))


def _fit_to_canvas(image: Image.Image, canvas: Canvas, around: Literal["edge", "constant"]) -> Image.Image:
    """Resizes an image to the frame and pads it to the canvas, with its own edges or black."""
    pixels = np.array(stretch(image, canvas.frame))
    rows, columns = canvas.crop
    height, width = canvas.size
    margins = [(rows.start, height - rows.stop), (columns.start, width - columns.stop), (0, 0)]
    return Image.fromarray(np.pad(pixels, margins[: pixels.ndim], mode=around))
