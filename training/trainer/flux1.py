"""The four Flux1 checkpoints as one student, or as one each.

Their transformers differ only in what the first layer reads beside the noise: nothing, a masked picture, edges. So one
transformer can learn all of it, with a first layer of its own for each, and every checkpoint gets the same weights.
From there each goes on alone, with its own lessons: four small models know more than one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deployments.families.flux1_latents import grid_ids
from deployments.families.flux1_prompts import MAX_POOLED
from training.build.checkpoints import component, configuration
from training.lessons.batches import Batch
from training.trainer.student import Published, Student, padded

NAMES = ("flux", "kontext", "fill", "canny")
WEAKEST, STRONGEST = 1.0, 40.0
"""Guidances that are practised. Nothing depends on them, so they must not disturb."""


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


class Flux1Student(Student):
    name = "flux"
    shift = 5.0

    def __init__(self, *names: str) -> None:
        """Learns the checkpoints `names`, or all four."""
        self._names = names or NAMES
        self.transformer = component("flux", "transformer")
        self.embedder = ConditionEmbedder(self.transformer.x_embedder, self._names)
        self.transformer.x_embedder = self.embedder
        self.text_encoder, self.text_encoder_2 = component("flux", "text_encoder"), component("flux", "text_encoder_2")
        self.image_encoder = component("flux", "redux/image_encoder")
        self.image_embedder = component("flux", "redux/image_embedder")
        self._gists, self.tokenizer_2 = component("flux", "tokenizer"), component("flux", "tokenizer_2")

    def networks(self) -> dict[str, nn.Module]:
        return {"transformer": self.transformer, **self._texts(), **self._redux()}

    def checkpoints(self) -> Mapping[str, Mapping[str, nn.Module]]:
        redux = {f"redux/{part}": network for part, network in self._redux().items()}
        return {
            name: {"transformer": self._transformer_of(name), **self._texts(), **(redux if name == "flux" else {})}
            for name in self._names
        }

    def adopt(self, published: Published) -> None:
        first = self.embedder.noise.in_features
        for name, condition in self.embedder.conditions.items():
            joint = published(name, "transformer", type(self.transformer))["x_embedder.weight"]
            condition.load_state_dict({"weight": joint[:, first:]})
        one = self._names[0]
        shared = published(one, "transformer", type(self.transformer))
        joint, bias = shared.pop("x_embedder.weight"), shared.pop("x_embedder.bias")
        self.embedder.noise.load_state_dict({"weight": joint[:, :first], "bias": bias})
        self.transformer.load_state_dict(shared, strict=False)
        for part, network in self.checkpoints()[one].items():
            if part != "transformer":
                network.load_state_dict(published(one, part, type(network)))

    def velocity(self, x: Tensor, t: Tensor, t_next: Tensor, batch: Batch) -> Tensor:
        text, gist = self._text(batch.prompts)
        if batch.image_prompts is not None:
            text = torch.cat([text, self._seen(batch.image_prompts)], dim=1)
        beside = x if batch.channels is None else torch.cat([x, batch.channels], dim=2)
        grids = [grid_ids(*batch.grid), *(grid_ids(*g, picture=k) for k, g in enumerate(batch.reference_grids, 1))]
        moved = self.transformer(
            hidden_states=torch.cat([beside, *batch.references], dim=1),
            timestep=t,
            guidance=WEAKEST * (STRONGEST / WEAKEST) ** torch.rand(len(x)),
            pooled_projections=gist,
            encoder_hidden_states=text,
            txt_ids=torch.zeros(text.shape[1], 3),
            img_ids=torch.cat(grids),
            return_dict=False,
        )[0]
        return moved[:, : x.shape[1]]

    def _texts(self) -> dict[str, nn.Module]:
        return {"text_encoder": self.text_encoder, "text_encoder_2": self.text_encoder_2}

    def _redux(self) -> dict[str, nn.Module]:
        """What lies beside `flux` alone."""
        if "flux" not in self._names:
            return {}
        return {"image_encoder": self.image_encoder, "image_embedder": self.image_embedder}

    def _transformer_of(self, name: str) -> nn.Module:
        """That of a checkpoint, with a single first layer."""
        weights = {
            key: value for key, value in self.transformer.state_dict().items() if not key.startswith("x_embedder.")
        }
        weights["x_embedder.weight"] = self.embedder.joined(name)
        weights["x_embedder.bias"] = self.embedder.noise.bias.detach()
        stock = component(name, "transformer")
        stock.load_state_dict(weights)
        return stock

    def _text(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Tokens (B, L, D), as many as T5's tokenizer gives or fewer while learning, and gist (B, P)."""
        longest = max(len(ids) for ids in self.tokenizer_2(list(prompts))["input_ids"])
        length = padded(longest, self.tokenizer_2.model_max_length, self.transformer.training)
        whole = {"truncation": True, "return_tensors": "pt"}
        words = self.tokenizer_2(list(prompts), padding="max_length", max_length=length, **whole)["input_ids"]
        # The gist is the state at the first end of text, which sees nothing of what follows.
        gists = self._gists(list(prompts), padding="longest", max_length=MAX_POOLED, **whole)["input_ids"]
        return self.text_encoder_2(words)[0], self.text_encoder(gists).pooler_output

    def _seen(self, pictures: Tensor) -> Tensor:
        """(B, 3, H, W) in [-1, 1] to (B, M, D), as Redux does; its processor scales to the same range."""
        side = self.image_encoder.config.image_size
        small = F.interpolate(pictures, size=(side, side), mode="bilinear", antialias=True, align_corners=False)
        return self.image_embedder(self.image_encoder(small).last_hidden_state).image_embeds
