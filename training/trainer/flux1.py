"""The four Flux1 checkpoints as one student, or as one each.

Their transformers differ only in what the first layer reads beside the noise: nothing, a masked picture, edges. So one
transformer can learn all of it, with a first layer of its own for each, and every checkpoint gets the same weights.
From there each goes on alone, with its own lessons: four small models know more than one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deployments.families.flux1_latents import grid_ids
from deployments.families.flux1_prompts import MAX_GIST
from training.build import build_flux1
from training.build.clip_t5 import TEXT_LENGTH, clip_encoder, t5_encoder
from training.build.vocabulary import clip, t5
from training.lessons.batches import Batch
from training.trainer.text import padded
from training.trainer.weights import Published

WEAKEST, STRONGEST = 1.0, 40.0
"""Guidances that are practised. Nothing depends on them, so they must not disturb."""


class ConditionEmbedder(nn.Module):
    """The first layer: one for the noise, and one per kind of condition, whose results are added."""

    def __init__(self, noise: nn.Linear, names: Sequence[str]) -> None:
        """For the conditions of the checkpoints `names`."""
        super().__init__()
        self.noise = noise
        self.conditions = nn.ModuleDict(
            {
                name: nn.Linear(build_flux1.KINDS[name].more_channels, noise.out_features, bias=False)
                for name in names
                if build_flux1.KINDS[name].more_channels
            }
        )

    def forward(self, tokens: Tensor) -> Tensor:
        noise, more = tokens.split([self.noise.in_features, tokens.shape[2] - self.noise.in_features], dim=2)
        embedded = self.noise(noise)
        for condition in self.conditions.values():
            if isinstance(condition, nn.Linear) and condition.in_features == more.shape[2]:
                embedded = embedded + condition(more)
        return embedded

    def joined(self, name: str) -> Tensor:
        """The weight (width, channels) of the checkpoint `name`, whose first layer is a single one."""
        parts = [self.noise.weight]
        if name in self.conditions:
            parts.append(self.conditions[name].get_parameter("weight"))
        return torch.cat(parts, dim=1).detach()


class Flux1Student:
    shift = 5.0

    def __init__(self, *names: str) -> None:
        """Learns the checkpoints `names`, or all four."""
        self._names = names or tuple(build_flux1.KINDS)
        self.transformer = build_flux1.transformer(more_channels=0)
        self.embedder = ConditionEmbedder(self.transformer.x_embedder, self._names)
        self.transformer.x_embedder = self.embedder  # type: ignore[assignment]
        self.text_encoder, self.text_encoder_2 = clip_encoder(), t5_encoder()
        self.redux = build_flux1.redux()
        self._gists = clip()
        self._words = t5()

    def networks(self) -> dict[str, nn.Module]:
        return {
            "transformer": self.transformer,
            "text_encoder": self.text_encoder,
            "text_encoder_2": self.text_encoder_2,
            **self._redux_networks(),
        }

    def _redux_networks(self) -> dict[str, nn.Module]:
        """What lies beside `flux` alone."""
        if "flux" not in self._names:
            return {}
        return {
            "image_encoder": self.redux.image_encoder.float(),
            "image_embedder": self.redux.image_embedder.float(),
        }

    def checkpoints(self) -> dict[str, dict[str, nn.Module]]:
        texts = {"text_encoder": self.text_encoder, "text_encoder_2": self.text_encoder_2}
        redux = {f"redux/{name}": network for name, network in self._redux_networks().items()}
        return {
            name: {"transformer": self._transformer_of(name), **texts, **(redux if name == "flux" else {})}
            for name in self._names
        }

    def _transformer_of(self, name: str) -> nn.Module:
        """That of a checkpoint, with a single first layer."""
        stock = build_flux1.transformer(build_flux1.KINDS[name].more_channels)
        weights = {
            key: value for key, value in self.transformer.state_dict().items() if not key.startswith("x_embedder.")
        }
        weights["x_embedder.weight"] = self.embedder.joined(name)
        weights["x_embedder.bias"] = self.embedder.noise.bias.detach()
        stock.load_state_dict(weights)
        return stock

    def adopt(self, published: Published) -> None:
        first = self.embedder.noise.in_features
        for name in self.embedder.conditions:
            joint = published(name, "transformer")["x_embedder.weight"]
            self.embedder.conditions[name].load_state_dict({"weight": joint[:, first:]})
        one = self._names[0]
        shared = published(one, "transformer")
        joint, bias = shared.pop("x_embedder.weight"), shared.pop("x_embedder.bias")
        self.embedder.noise.load_state_dict({"weight": joint[:, :first], "bias": bias})
        self.transformer.load_state_dict(shared, strict=False)
        for component, network in self.checkpoints()[one].items():
            if component != "transformer":
                network.load_state_dict(published(one, component), strict=False)

    def velocity(self, x: Tensor, t: Tensor, t_next: Tensor, batch: Batch) -> Tensor:
        text, gist = self._text(batch.prompts, x.device)
        if batch.image_prompts is not None:
            text = torch.cat([text, self._seen(batch.image_prompts)], dim=1)
        beside = x if batch.channels is None else torch.cat([x, batch.channels], dim=2)
        grids = [grid_ids(*batch.grid), *(grid_ids(*g, picture=k) for k, g in enumerate(batch.reference_grids, 1))]
        guidance = WEAKEST * (STRONGEST / WEAKEST) ** torch.rand(len(x), device=x.device)
        moved = self.transformer(
            hidden_states=torch.cat([beside, *batch.references], dim=1),
            timestep=t,
            guidance=guidance,
            pooled_projections=gist,
            encoder_hidden_states=text,
            txt_ids=torch.zeros(text.shape[1], 3, device=x.device),
            img_ids=torch.cat(grids).to(x.device),
            return_dict=False,
        )[0]
        return moved[:, : x.shape[1]]

    def _text(self, prompts: Sequence[str], device: torch.device) -> tuple[Tensor, Tensor]:
        """Tokens (B, TEXT_LENGTH, D), or fewer while learning, and gist (B, P)."""
        longest = max(len(ids) for ids in self._words(list(prompts))["input_ids"])
        length = padded(longest, TEXT_LENGTH, self.transformer.training)
        whole = {"truncation": True, "return_tensors": "pt"}
        words = self._words(list(prompts), padding="max_length", max_length=length, **whole)["input_ids"].to(device)
        # The gist is the state at the first end of text, which sees nothing of what follows.
        gists = self._gists(list(prompts), padding="longest", max_length=MAX_GIST, **whole)["input_ids"].to(device)
        return self.text_encoder_2(words)[0], self.text_encoder(gists).pooler_output

    def _seen(self, pictures: Tensor) -> Tensor:
        """(B, 3, H, W) in [-1, 1] to (B, M, D), as Redux does; its processor scales to the same range."""
        side = self.redux.image_encoder.config.image_size
        small = F.interpolate(pictures, size=(side, side), mode="bilinear", antialias=True, align_corners=False)
        states = self.redux.image_encoder(small).last_hidden_state
        return self.redux.image_embedder(states).image_embeds
