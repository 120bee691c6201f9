"""Flux3, step-distilled: up to 10 reference images, no guidance, any size.

Runs the components of diffusers' `Flux3DistilledModularPipeline`: uses its blocks for references and decoding, and
replaces its loop by the engine. A job that runs alone in float32 gets the stock pipeline's image bit by bit.

Tokens of a step: text (L, a multiple of 80), image (N), references (M). Position ids are (t, h, w, l) with h and w
halved: the image at l = 0, reference k at l = -k, text along l. Padded text is attended.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import torch
from diffusers.modular_pipelines.flux3.encoders import Flux3VaeEncoderStep
from diffusers.modular_pipelines.flux3.modular_blocks_flux3_distilled import Flux3DistilledAutoBlocks
from PIL import Image
from torch import Tensor

from deployments.checkpoint_files import CheckpointError
from deployments.families.canvas import canvas_for
from deployments.families.conditioning import PreparedRequest, trim_language_model
from deployments.families.flux import TOKEN, Flux
from deployments.families.packed.batch import StepInputs
from deployments.families.packed.transformers import PackedFlux3
from deployments.families.pipeline import LoadOptions, shared_components
from deployments.families.state import State, draw_noise, split_batch
from deployments.families.step import schedule
from deployments.images import stretch

TEXT_MULTIPLE = 80
MAX_TEXT = 8192
TEXT_STATES = (4, 8, 12, 16, 20, 24, 28, 32)
"""Hidden states of the text encoder that are concatenated, as the pipeline does by default."""
TEXT_PARTS = ("text_encoder", "tokenizer")
"""Components that encode prompts."""


class Flux3Prompt(NamedTuple):
    text: Tensor
    """(1, L, 8 x width)."""


class Flux3PromptEncoder:
    def __init__(self, pipeline: Any, load_options: LoadOptions) -> None:
        """`pipeline` is a `Flux3DistilledModularPipeline` with its text components, on its device."""
        self._text_encoder: Any = pipeline.text_encoder
        trim_language_model(self._text_encoder, TEXT_STATES[-1])
        self._processor: Any = pipeline.tokenizer
        self._dtype, self._device = load_options.dtype, load_options.device

    def encode(self, prompts: Sequence[str]) -> list[Flux3Prompt]:
        """Encodes prompts of equal padded length in one pass."""
        tokenizer = getattr(self._processor, "tokenizer", self._processor)
        chats = [
            self._processor.apply_chat_template(
                [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
            )
            for prompt in prompts
        ]
        groups: dict[int, list[int]] = defaultdict(list)
        for index, chat in enumerate(chats):
            length = len(tokenizer(chat, truncation=True, max_length=MAX_TEXT)["input_ids"])
            groups[min(math.ceil(length / TEXT_MULTIPLE) * TEXT_MULTIPLE, MAX_TEXT)].append(index)
        texts: dict[int, Tensor] = {}
        for length, members in groups.items():
            inputs = tokenizer(
                [chats[index] for index in members],
                return_tensors="pt",
                padding="max_length",
                padding_side="right",
                truncation=True,
                max_length=length,
            ).to(self._device)
            texts.update(zip(members, self._encode_batch(inputs["input_ids"], inputs["attention_mask"]), strict=True))
        return [Flux3Prompt(texts[index]) for index in range(len(prompts))]

    def _encode_batch(self, tokens: Tensor, mask: Tensor) -> list[Tensor]:
        """Returns B stacks of hidden states (1, L, 8 x width) for token ids and mask (B, L)."""
        # The models were trained with padding at position 1; newer text encoders have it at 0.
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens).masked_fill(mask == 0, 1)
        states = self._text_encoder(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            output_hidden_states=True,
            use_cache=False,
        ).hidden_states
        return split_batch(torch.cat([states[k] for k in TEXT_STATES], dim=-1).to(self._dtype))


MAX_REFERENCES = 10
POSITION_SCALE = 0.5


class Flux3(Flux[Flux3Prompt]):
    text_parts: ClassVar[Sequence[str]] = TEXT_PARTS
    prompt_type = Flux3Prompt
    encoder_type = Flux3PromptEncoder
    packed_type = PackedFlux3
    max_references = MAX_REFERENCES
    reads_empty_prompts = False

    def __init__(self, pipeline: Any, load_options: LoadOptions) -> None:
        """`pipeline` is a loaded `Flux3DistilledModularPipeline`, on its device."""
        self._scheduler: Any = pipeline.scheduler
        self._image_processor = _with_vae(pipeline.blocks.sub_blocks["vae_encoder"], pipeline).image_processor
        self._encode_pixels = _with_vae(Flux3VaeEncoderStep(), pipeline)
        decoder = _with_vae(pipeline.blocks.sub_blocks["decode"], pipeline)
        transformer: Any = pipeline.transformer

        def decode(latents: Tensor) -> Tensor:
            return decoder(latents=latents.to(transformer.dtype), output_type="pt", output="images").float()

        super().__init__(
            pipeline,
            load_options,
            channels=int(transformer.config.in_channels),
            decode=decode,
            solo_differs=load_options.config.render_side is None,
        )

    @classmethod
    def load(cls, folder: Path, load_options: LoadOptions) -> Self:
        pipeline = _init_pipeline(folder)
        pipeline.update_components(**shared_components(folder, load_options.dtype))
        absent = TEXT_PARTS if load_options.shared_encoder else ()
        names = [name for name, component in pipeline.components.items() if component is None and name not in absent]
        _load(folder, pipeline, names, load_options)
        return cls(pipeline, load_options)

    @classmethod
    def prompt_encoder(cls, folder: Path, load_options: LoadOptions) -> Flux3PromptEncoder:
        pipeline = _init_pipeline(folder)
        _load(folder, pipeline, TEXT_PARTS, load_options)
        return Flux3PromptEncoder(pipeline, load_options)

    @torch.inference_mode()
    def velocity(self, state: State, inputs: StepInputs) -> Tensor:
        dtype, per, ids = self.transformer.dtype, state.per, state.ids
        velocity = self.transformer(
            hidden_states=state.x.to(dtype),
            encoder_hidden_states=per["text"],
            timestep=inputs.t.to(dtype),
            target_timestep=inputs.t_next.to(dtype),
            img_ids=ids["image_ids"],
            txt_ids=ids["text_ids"],
            image_cond_hidden_states=per.get("references"),
            image_cond_ids=ids.get("reference_ids"),
            return_dict=False,
        )
        return velocity[0].float()

    def _text_conditioning(self, prompt: Flux3Prompt) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        return {"text": prompt.text}, {"text_ids": _line_ids(prompt.text.shape[1]).to(self._device)}

    def _state(self, request: PreparedRequest, prompt: Flux3Prompt) -> State:
        job, canvas = request.job, self._canvas(request.job)
        references = self._references.encode(request, self._encode_reference)
        per, ids = self._text_conditioning(prompt)
        ids["image_ids"] = _grid_ids(*canvas.grid, image=0)
        if references:
            per["references"] = torch.cat([_to_tokens(r) for r in references], dim=1).to(self.transformer.dtype)
            ids["reference_ids"] = torch.cat([_grid_ids(*r.shape[-2:], image=-1 - k) for k, r in enumerate(references)])
        generator = torch.Generator("cpu").manual_seed(job.request.seed)
        noise = draw_noise((1, self._channels, *canvas.grid), generator, self._device)
        t, dt = schedule(self._scheduler, job.request.steps)
        return State(
            job=job,
            x=_to_tokens(noise),
            t=t,
            dt=dt,
            per=per,
            ids={name: each.to(self._device) for name, each in ids.items()},
            grid=canvas.grid,
            frame=canvas.frame,
        )

    def _encode_reference(self, image: Image.Image, solo: bool) -> Tensor:
        """Returns latents (1, C, h, w). A job's only reference keeps its size; one of several is cut to a megapixel.

        With `render_side`, resizes to a canvas like the new image.
        """
        if self._render_side is not None:
            image = stretch(image, canvas_for(*image.size, TOKEN, self._render_side).size)
        # "fill" would pad each side to 64 pixels; "crop" keeps whole tokens as they are.
        mode = "fill" if solo else "crop"
        pixels, _ = self._image_processor.preprocess(image, resize_mode=mode)
        return self._encode_pixels(condition_images=[pixels], output="image_cond_latents")[0]


def _init_pipeline(folder: Path) -> Any:
    blocks = Flux3DistilledAutoBlocks()
    blocks.sub_blocks.pop("prompt_upsampler")  # prompts are rewritten before
    return blocks.init_pipeline(str(folder))


def _load(folder: Path, pipeline: Any, names: Sequence[str], load_options: LoadOptions) -> None:
    """Loads components onto their device. Raises CheckpointError."""
    pipeline.load_components(names=list(names), dtype=load_options.dtype, local_files_only=load_options.local_only)
    if missing := sorted(name for name in names if getattr(pipeline, name) is None):
        raise CheckpointError(f"{folder}: could not load {', '.join(missing)}; the log says why")
    pipeline.to(load_options.device)


def _with_vae(block: Any, pipeline: Any) -> Any:
    """Returns a pipeline of one block with the loaded autoencoder."""
    block_pipeline = block.init_pipeline()
    block_pipeline.update_components(vae=pipeline.vae)
    return block_pipeline


def _to_tokens(latents: Tensor) -> Tensor:
    """Converts (1, C, h, w) to tokens (1, h x w, C)."""
    return latents.flatten(2).transpose(1, 2)


def _grid_ids(rows: int, columns: int, image: int) -> Tensor:
    """Returns position ids (t, h, w, l) of an image's tokens, (rows x columns, 4) float32, row by row."""
    ids = torch.cartesian_prod(
        torch.arange(1), torch.arange(rows), torch.arange(columns), torch.tensor([image])
    ).float()
    ids[:, 1:3] *= POSITION_SCALE
    return ids


def _line_ids(length: int) -> Tensor:
    """Returns position ids of text tokens, (length, 4) float32."""
    ids = torch.zeros(length, 4)
    ids[:, 3] = torch.arange(length)
    return ids
