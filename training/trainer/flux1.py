"""The four Flux1 checkpoints as one student, or as one each.

Their transformers differ only in what the first layer reads beside the noise: nothing, a masked picture, edges. So one
transformer can learn all of it, with a first layer of its own for each, and every checkpoint gets the same weights.
From there each goes on alone, with its own lessons: four small models know more than one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deployments.families.flux1_latents import grid_ids
from deployments.families.flux1_prompts import MAX_POOLED
from training.build.checkpoints import component, configuration
from training.lessons.batches import Batch
from training.trainer.student import Published, Student, tokenized

NAMES = ("flux", "kontext", "fill", "canny")
WEAKEST, STRONGEST = 1.0, 40.0
"""Guidances while a course runs. Nothing depends on them before `guidance` teaches what they mean."""
_FIRST = "x_embedder."
_TEXTS = ("text_encoder", "text_encoder_2")
_REDUX = ("image_encoder", "image_embedder")
"""What lies beside `flux` alone."""


class ConditionEmbedder(nn.Module):
    """The first layer: one for the noise, and one per kind of condition, whose results are added."""

    def __init__(self, noise: nn.Linear, names: Sequence[str]) -> None:
        """For the conditions of the checkpoints `names`."""
        super().__init__()
        self.noise = noise
        more = {name: configuration(name, "transformer")["in_channels"] - noise.in_features for name in names}
        self.conditions = nn.ModuleDict(
            {name: nn.Linear(channels, noise.out_features, bias=False) for name, channels in more.items() if channels}
        )

    def forward(self, tokens: Tensor) -> Tensor:
        noise, more = tokens.tensor_split([self.noise.in_features], dim=2)
        embedded = self.noise(noise)
        for condition in self.conditions.values():
            if condition.get_parameter("weight").shape[1] == more.shape[2]:
                embedded = embedded + condition(more)
        return embedded

    def joined(self, name: str) -> dict[str, Tensor]:
        """The single first layer of the checkpoint `name`."""
        condition = [self.conditions[name].get_parameter("weight")] if name in self.conditions else []
        return {"weight": torch.cat([self.noise.weight, *condition], dim=1).detach(), "bias": self.noise.bias.detach()}


class Flux1Student(Student):
    name = "flux"

    def __init__(self, *names: str) -> None:
        """Learns the checkpoints `names`, or all four."""
        self._names = names or NAMES
        self.transformer = component("flux", "transformer")
        self.embedder = ConditionEmbedder(self.transformer.x_embedder, self._names)
        self.transformer.x_embedder = self.embedder
        self._texts: dict[str, Any] = {part: component("flux", part) for part in _TEXTS}
        self._redux: dict[str, Any] = {part: component("flux", f"redux/{part}") for part in _REDUX}
        self.tokenizer, self.tokenizer_2 = component("flux", "tokenizer"), component("flux", "tokenizer_2")

    def networks(self) -> dict[str, nn.Module]:
        return {"transformer": self.transformer, **self._texts, **(self._redux if "flux" in self._names else {})}

    def checkpoints(self) -> Mapping[str, Mapping[str, nn.Module]]:
        redux = {f"redux/{part}": network for part, network in self._redux.items()}
        return {
            name: {"transformer": self._transformer_of(name), **self._texts, **(redux if name == "flux" else {})}
            for name in self._names
        }

    def adopt(self, published: Published) -> None:
        one, first = self._names[0], self.embedder.noise.in_features
        joint = {name: published(name, "transformer", type(self.transformer)) for name in {one, *self._names}}
        for name, condition in self.embedder.conditions.items():
            condition.load_state_dict({"weight": joint[name][f"{_FIRST}weight"][:, first:]})
        noise = {"weight": joint[one][f"{_FIRST}weight"][:, :first], "bias": joint[one][f"{_FIRST}bias"]}
        self.embedder.noise.load_state_dict(noise)
        shared = {key: value for key, value in joint[one].items() if not key.startswith(_FIRST)}
        self.transformer.load_state_dict(shared, strict=False)
        for part, network in self.checkpoints()[one].items():
            if part != "transformer":
                network.load_state_dict(published(one, part, type(network)))

    def velocity(self, x: Tensor, t: Tensor, t_next: Tensor, batch: Batch, guidance: Tensor | None = None) -> Tensor:
        """As PictureStudent's; `guidance` (B,) is drawn if none is given."""
        if guidance is None:
            guidance = WEAKEST * (STRONGEST / WEAKEST) ** torch.rand(len(x))
        text, gist = self._text(batch.prompts)
        if batch.image_prompts is not None:
            text = torch.cat([text, self._seen(batch.image_prompts)], dim=1)
        beside = x if batch.channels is None else torch.cat([x, batch.channels], dim=2)
        grids = enumerate((batch.grid, *batch.reference_grids))
        moved = self.transformer(
            hidden_states=torch.cat([beside, *batch.references], dim=1),
            timestep=t,
            guidance=guidance,
            pooled_projections=gist,
            encoder_hidden_states=text,
            txt_ids=torch.zeros(text.shape[1], 3),
            img_ids=torch.cat([grid_ids(*grid, picture=k) for k, grid in grids]),
            return_dict=False,
        )[0]
        return moved[:, : x.shape[1]]

    def _transformer_of(self, name: str) -> nn.Module:
        """That of a checkpoint, with a single first layer."""
        stock, weights = component(name, "transformer"), self.transformer.state_dict()
        shared = {key: value for key, value in weights.items() if not key.startswith(_FIRST)}
        stock.load_state_dict(shared | {_FIRST + key: value for key, value in self.embedder.joined(name).items()})
        return stock

    def _text(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Tokens (B, L, D) of T5 and gist (B, P): CLIP's state at the first end of text, which padding can't change."""
        words = tokenized(self.tokenizer_2, prompts, self.transformer.training)["input_ids"]
        gists = self.tokenizer(
            list(prompts), padding="longest", truncation=True, max_length=MAX_POOLED, return_tensors="pt"
        )
        return self._texts["text_encoder_2"](words)[0], self._texts["text_encoder"](gists["input_ids"]).pooler_output

    def _seen(self, pictures: Tensor) -> Tensor:
        """(B, 3, H, W) in [-1, 1] to (B, M, D), as Redux does; its processor scales to the same range."""
        encoder = self._redux["image_encoder"]
        side = encoder.config.image_size
        small = F.interpolate(pictures, size=(side, side), mode="bilinear", antialias=True, align_corners=False)
        return self._redux["image_embedder"](encoder(small).last_hidden_state).image_embeds
