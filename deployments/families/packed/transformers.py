"""Packed forwards of Flux1, Flux2 and Flux3 transformers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F
from diffusers.models.embeddings import apply_rotary_emb
from torch import Tensor

from deployments.families.packed.batch import Attention, Constants, Packed, Row, StepInputs, sdpa_loop
from deployments.families.state import State
from deployments.lora.segments import AdaptedLayers, AppliedAdapter


class PackedForward(ABC):
    """A transformer's forward over a row of pictures."""

    def __init__(self, transformer: Any) -> None:
        self.attention: Attention = sdpa_loop
        self._net: Any = transformer
        self._adapted = AdaptedLayers(transformer)

    def __call__(self, x: Tensor, states: Sequence[State], moment: StepInputs) -> Tensor:
        """The tokens of the pictures of `states` in a row, (1, T, C) float32, to their velocities, likewise.

        Pictures of one adapter should lie beside each other.
        """
        packed = self._packed(states)
        with self._adapted.applied([state.adapter for state in states]):
            return self._velocities(x.to(self._net.dtype), packed, moment).float()

    def adapted(self, adapter: AppliedAdapter | None) -> AbstractContextManager[None]:
        """Within it the transformer's own forward of a single picture has that adapter."""
        return self._adapted.applied([adapter])

    @abstractmethod
    def _constants(self, state: State) -> Constants:
        """What of a picture is the same in every step."""

    @abstractmethod
    def _velocities(self, x: Tensor, packed: Packed, moment: StepInputs) -> Tensor:
        """As `__call__`, in the network's precision."""

    def _packed(self, states: Sequence[State]) -> Packed:
        """Kept with the first picture until the batch has other members."""
        first, *others = states
        if first.packed is not None and first.packed[0] == others:
            return first.packed[1]
        constants = []
        for state in states:
            state.packed = None
            if state.constants is None:
                with self._adapted.applied([state.adapter]):
                    state.constants = self._constants(state)
            constants.append(state.constants)
        packed = Packed.of(constants)
        first.packed = others, packed
        return packed

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, row: Row) -> Tensor:
        """Queries and keys, normed, and values, (1, T, heads, width) each, to (1, T, heads x width)."""
        q, k = (_rotated(x, positions).to(v.dtype) for x in (q, k))
        return self.attention(q, k, v, row).flatten(2)


def _rotated(x: Tensor, positions: Tensor) -> Tensor:
    rotate: Any = apply_rotary_emb  # its types are narrower than what it takes
    return rotate(x, positions.unbind(), sequence_dim=1)


_TEXT, _PICTURE, _REFERENCES = "txt", "image", "image_cond"
"""The transformer's names of its kinds of tokens."""


class PackedFlux3(PackedForward):
    def _constants(self, state: State) -> Constants:
        net, per, ids = self._net, state.per, state.ids
        references = per.get("references")
        return Constants(
            text=net.context_embedder(per["text"]),
            references=None if references is None else net.x_embedders[_REFERENCES](references),
            channels=None,
            pooled=None,
            text_positions=self._positions(ids["text_ids"]),
            picture_positions=self._positions(ids["picture_ids"]),
            reference_positions=self._positions(ids.get("reference_ids", ids["text_ids"][:0])),
        )

    def _positions(self, ids: Tensor) -> Tensor:
        return torch.stack(self._net.pos_embed(ids))

    def _velocities(self, x: Tensor, packed: Packed, moment: StepInputs) -> Tensor:
        net, same = self._net, packed.constants
        drawn, still = self._times(moment)
        with self._adapted.over(packed.picture):
            picture = net.x_embedders[_PICTURE](x)
        modes = {
            _TEXT: (same.text, still, packed.text, same.text_positions, net.txt_mode_blocks),
            _PICTURE: (picture, drawn, packed.picture, same.picture_positions, net.mode_blocks[_PICTURE]),
        }
        if same.references is not None:
            blocks = net.mode_blocks[_REFERENCES]
            modes[_REFERENCES] = (same.references, still, packed.references, same.reference_positions, blocks)
        tokens, modulations = {}, {}
        for mode, (h, time, row, positions, blocks) in modes.items():
            early = row.spread(net.early_stream_modulations[mode](time))
            tokens[mode] = self._run(blocks, h, early, positions, row)
            modulations[mode] = row.spread(net.single_stream_modulations[mode](time))
        h, modulation = (
            packed.joint.gathered(part[_TEXT], packed.image.gathered(part[_PICTURE], part.get(_REFERENCES)))
            for part in (tokens, modulations)
        )
        h = self._run(net.single_transformer_blocks, h, modulation, packed.joint_positions, packed.joint)
        h = packed.image.scattered(packed.joint.scattered(h)[1])[0]
        scale, shift = packed.picture.spread(net.norm_out.linear(drawn)).chunk(2, dim=-1)
        with self._adapted.over(packed.picture):
            return net.proj_out(net.norm_out.norm(h) * (1 + scale) + shift)

    def _times(self, moment: StepInputs) -> tuple[Tensor, Tensor]:
        """What modulates the pictures' tokens, and all others: (B, D) each, activated."""
        net = self._net
        drawn = net.timestep_embedder(self._sines(moment.t))
        still = net.timestep_embedder(self._sines(torch.zeros_like(moment.t)))
        if net.target_timestep_embedder is not None:
            ahead = net.target_timestep_embedder(self._sines(moment.t_next))
            drawn, still = drawn + ahead, still + ahead
        return F.silu(drawn), F.silu(still)

    def _sines(self, t: Tensor) -> Tensor:
        dtype = self._net.dtype
        return self._net.time_proj(t.to(dtype) * 1000).to(dtype)

    def _run(self, blocks: Iterable[Any], h: Tensor, modulation: Tensor, positions: Tensor, row: Row) -> Tensor:
        """Through blocks of attention and feed-forward beside each other; joint ones and those of a kind are alike."""
        shift, scale, gate = modulation.chunk(3, dim=-1)
        with self._adapted.over(row):
            for block in blocks:
                attn, seen = block.attn, (1 + scale) * block.norm(h) + shift
                q, k, v = (layer(seen).unflatten(-1, (attn.heads, -1)) for layer in (attn.to_q, attn.to_k, attn.to_v))
                attended = self._attended(attn.norm_q(q.float()), attn.norm_k(k.float()), v, positions, row)
                h = h + gate * (attn.to_out[0](attended) + block.ff(seen))
        return h


class DualForward(PackedForward):
    def _constants(self, state: State) -> Constants:
        net, per, drawn = self._net, state.per, state.x.shape[1]
        references = per.get("references")
        positions = torch.stack(net.pos_embed(torch.cat([state.ids["text_ids"], state.ids["picture_ids"]])))
        text = per["text"].shape[1]
        return Constants(
            text=net.context_embedder(per["text"]),
            references=None if references is None else net.x_embedder(references),
            channels=per.get("channels"),
            pooled=per.get("pooled"),
            text_positions=positions[:, :text],
            picture_positions=positions[:, text : text + drawn],
            reference_positions=positions[:, text + drawn :],
        )

    def _image(self, x: Tensor, packed: Packed) -> Tensor:
        """Pictures and references as the first block sees them."""
        channels = packed.constants.channels
        with self._adapted.over(packed.picture):
            drawn = self._net.x_embedder(x if channels is None else torch.cat([x, channels], dim=2))
        return packed.image.gathered(drawn, packed.constants.references)

    def _dual(
        self,
        block: Any,
        text: Tensor,
        image: Tensor,
        modulations: tuple[Tensor, Tensor],
        norms: tuple[Any, Any],
        packed: Packed,
    ) -> tuple[Tensor, Tensor]:
        """Text and image through one of the first blocks. `modulations` of text and image, (1, T, 6 D) each; `norms`
        are those before attention."""
        attn, joint, over = block.attn, packed.joint, self._adapted.over
        text_mod, image_mod = (modulation.chunk(6, dim=-1) for modulation in modulations)
        with over(packed.text):
            seen = norms[0](text) * (1 + text_mod[1]) + text_mod[0]
            of_text = [heads(layer(seen), attn) for layer in (attn.add_q_proj, attn.add_k_proj, attn.add_v_proj)]
        with over(packed.image):
            seen = norms[1](image) * (1 + image_mod[1]) + image_mod[0]
            of_image = [heads(layer(seen), attn) for layer in (attn.to_q, attn.to_k, attn.to_v)]
        q = joint.gathered(attn.norm_added_q(of_text[0]), attn.norm_q(of_image[0]))
        k = joint.gathered(attn.norm_added_k(of_text[1]), attn.norm_k(of_image[1]))
        v = joint.gathered(of_text[2], of_image[2])
        attended = joint.scattered(self._attended(q, k, v, packed.joint_positions, joint))
        with over(packed.text):
            text = text + text_mod[2] * attn.to_add_out(attended[0])
            seen = block.norm2_context(text) * (1 + text_mod[4]) + text_mod[3]
            text = text + text_mod[5] * block.ff_context(seen)
        with over(packed.image):
            image = image + image_mod[2] * attn.to_out[0](attended[1])
            seen = block.norm2(image) * (1 + image_mod[4]) + image_mod[3]
            image = image + image_mod[5] * block.ff(seen)
        return text, image

    def _drawn(self, h: Tensor, time: Tensor, packed: Packed) -> Tensor:
        """The joint row after all blocks to the pictures' velocities. `time` is (B, D)."""
        picture = packed.image.scattered(packed.joint.scattered(h)[1])[0]
        norm = self._net.norm_out
        scale, shift = packed.picture.spread(norm.linear(norm.silu(time).to(h.dtype))).chunk(2, dim=-1)
        with self._adapted.over(packed.picture):
            return self._net.proj_out(norm.norm(picture) * (1 + scale) + shift)


def heads(tokens: Tensor, attn: Any) -> Tensor:
    """(1, T, heads x width) to (1, T, heads, width)."""
    return tokens.unflatten(-1, (-1, attn.head_dim))


class PackedFlux1(DualForward):
    def _velocities(self, x: Tensor, packed: Packed, moment: StepInputs) -> Tensor:
        net = self._net
        time = self._time(packed, moment)
        active = F.silu(time)
        text, image = packed.constants.text, self._image(x, packed)
        for block in net.transformer_blocks:
            modulations = (
                packed.text.spread(block.norm1_context.linear(active)),
                packed.image.spread(block.norm1.linear(active)),
            )
            norms = (block.norm1_context.norm, block.norm1.norm)
            text, image = self._dual(block, text, image, modulations, norms, packed)
        h = packed.joint.gathered(text, image)
        for block in net.single_transformer_blocks:
            modulation = packed.joint.spread(block.norm.linear(active))
            with self._adapted.over(packed.joint):
                h = self._single(block, h, modulation, packed)
        return self._drawn(h, time, packed)

    def _time(self, packed: Packed, moment: StepInputs) -> Tensor:
        """(B, D). Beside the time it says the guidance and what CLIP made of the prompt."""
        net, dtype, pooled = self._net, self._net.dtype, packed.constants.pooled
        said = [moment.t.to(dtype) * 1000]
        if moment.guidance is not None:
            said.append(moment.guidance.to(dtype) * 1000)
        return net.time_text_embed(*said, pooled)

    def _single(self, block: Any, h: Tensor, modulation: Tensor, packed: Packed) -> Tensor:
        attn = block.attn
        shift, scale, gate = modulation.chunk(3, dim=-1)
        seen = block.norm.norm(h) * (1 + scale) + shift
        q, k, v = (heads(layer(seen), attn) for layer in (attn.to_q, attn.to_k, attn.to_v))
        attended = self._attended(attn.norm_q(q), attn.norm_k(k), v, packed.joint_positions, packed.joint)
        ahead = block.act_mlp(block.proj_mlp(seen))
        return h + gate * block.proj_out(torch.cat([attended, ahead], dim=-1))


class PackedFlux2(DualForward):
    def _velocities(self, x: Tensor, packed: Packed, moment: StepInputs) -> Tensor:
        net, dtype = self._net, self._net.dtype
        guidance = None if moment.guidance is None else moment.guidance.to(dtype) * 1000
        time = net.time_guidance_embed(moment.t.to(dtype) * 1000, guidance)
        text, image = packed.constants.text, self._image(x, packed)
        modulations = (
            packed.text.spread(net.double_stream_modulation_txt(time)),
            packed.image.spread(net.double_stream_modulation_img(time)),
        )
        for block in net.transformer_blocks:
            text, image = self._dual(block, text, image, modulations, (block.norm1_context, block.norm1), packed)
        h = packed.joint.gathered(text, image)
        modulation = packed.joint.spread(net.single_stream_modulation(time)).chunk(3, dim=-1)
        with self._adapted.over(packed.joint):
            for block in net.single_transformer_blocks:
                h = self._single(block.attn, block.norm(h), h, modulation, packed)
        return self._drawn(h, time, packed)

    def _single(self, attn: Any, normed: Tensor, h: Tensor, modulation: tuple[Tensor, ...], packed: Packed) -> Tensor:
        shift, scale, gate = modulation
        attn_in, ahead = attn.to_qkv_mlp_proj((1 + scale) * normed + shift).tensor_split([3 * attn.inner_dim], dim=-1)
        q, k, v = (heads(part, attn) for part in attn_in.chunk(3, dim=-1))
        attended = self._attended(attn.norm_q(q), attn.norm_k(k), v, packed.joint_positions, packed.joint)
        return h + gate * attn.to_out(torch.cat([attended, attn.mlp_act_fn(ahead)], dim=-1))
