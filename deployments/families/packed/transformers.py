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

from deployments.families.packed.batch import Attention, Constants, PackedBatch, PackedSequence, StepInputs, sdpa_loop
from deployments.families.state import State
from deployments.lora.segments import AdaptedLayers, AppliedAdapter


class PackedForward(ABC):
    """A transformer's forward over a sequence of images."""

    def __init__(self, transformer: Any) -> None:
        self.attention: Attention = sdpa_loop
        self._net: Any = transformer
        self._adapted_layers = AdaptedLayers({"transformer": transformer})

    def __call__(self, x: Tensor, states: Sequence[State], inputs: StepInputs) -> Tensor:
        """Returns the velocities of a sequence of images, (1, T, C) float32 for tokens of that shape.

        Images with the same adapter should be adjacent.
        """
        batch = self._pack(states)
        with self._adapted_layers.apply([state.adapter for state in states]):
            return self._velocities(x.to(self._net.dtype), batch, inputs).float()

    def with_adapter(self, adapter: AppliedAdapter | None) -> AbstractContextManager[None]:
        """Applies an adapter to the transformer's own forward of a single image."""
        return self._adapted_layers.apply([adapter])

    @abstractmethod
    def _constants(self, state: State) -> Constants:
        """Returns the values that are the same in every step of an image."""

    @abstractmethod
    def _velocities(self, x: Tensor, batch: PackedBatch, inputs: StepInputs) -> Tensor:
        """Computes `__call__` in the network's precision."""

    def _pack(self, states: Sequence[State]) -> PackedBatch:
        """Returns the batch of `states`, cached on the first state until the members change."""
        first, *others = states
        if first.packed_batch is not None and first.packed_batch[0] == others:
            return first.packed_batch[1]
        constants = []
        for state in states:
            state.packed_batch = None
            if state.constants is None:
                with self._adapted_layers.apply([state.adapter]):
                    state.constants = self._constants(state)
            constants.append(state.constants)
        batch = PackedBatch.from_constants(constants)
        first.packed_batch = others, batch
        return batch

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, sequence: PackedSequence) -> Tensor:
        """Maps normed queries and keys, and values, (1, T, heads, width) each, to (1, T, heads x width)."""
        q, k = (_rotate(x, positions).to(v.dtype) for x in (q, k))
        return self.attention(q, k, v, sequence).flatten(2)


def _rotate(x: Tensor, positions: Tensor) -> Tensor:
    rotate: Any = apply_rotary_emb  # its annotated types are too narrow
    return rotate(x, positions.unbind(), sequence_dim=1)


_TEXT, _IMAGE, _REFERENCES = "txt", "image", "image_cond"
"""Names of token types in the transformer."""


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
            image_positions=self._positions(ids["image_ids"]),
            reference_positions=self._positions(ids.get("reference_ids", ids["text_ids"][:0])),
        )

    def _positions(self, ids: Tensor) -> Tensor:
        return torch.stack(self._net.pos_embed(ids))

    def _velocities(self, x: Tensor, batch: PackedBatch, inputs: StepInputs) -> Tensor:
        net, constants = self._net, batch.constants
        image_time, context_time = self._times(inputs)
        with self._adapted_layers.over(batch.image):
            image = net.x_embedders[_IMAGE](x)
        modes = {
            _TEXT: (constants.text, context_time, batch.text, constants.text_positions, net.txt_mode_blocks),
            _IMAGE: (image, image_time, batch.image, constants.image_positions, net.mode_blocks[_IMAGE]),
        }
        if constants.references is not None:
            blocks, positions = net.mode_blocks[_REFERENCES], constants.reference_positions
            modes[_REFERENCES] = (constants.references, context_time, batch.references, positions, blocks)
        tokens, modulations = {}, {}
        for mode, (h, time, sequence, positions, blocks) in modes.items():
            early = sequence.expand_to_tokens(net.early_stream_modulations[mode](time))
            tokens[mode] = self._run(blocks, h, early, positions, sequence)
            modulations[mode] = sequence.expand_to_tokens(net.single_stream_modulations[mode](time))
        h, modulation = (
            batch.joint.interleave(part[_TEXT], batch.visual.interleave(part[_IMAGE], part.get(_REFERENCES)))
            for part in (tokens, modulations)
        )
        h = self._run(net.single_transformer_blocks, h, modulation, batch.joint_positions, batch.joint)
        h = batch.visual.deinterleave(batch.joint.deinterleave(h)[1])[0]
        scale, shift = batch.image.expand_to_tokens(net.norm_out.linear(image_time)).chunk(2, dim=-1)
        with self._adapted_layers.over(batch.image):
            return net.proj_out(net.norm_out.norm(h) * (1 + scale) + shift)

    def _times(self, inputs: StepInputs) -> tuple[Tensor, Tensor]:
        """Returns the modulation inputs of image tokens and of all others, (B, D) each, activated."""
        net = self._net
        image_time = net.timestep_embedder(self._sines(inputs.t))
        context_time = net.timestep_embedder(self._sines(torch.zeros_like(inputs.t)))
        if net.target_timestep_embedder is not None:
            target_time = net.target_timestep_embedder(self._sines(inputs.t_next))
            image_time, context_time = image_time + target_time, context_time + target_time
        return F.silu(image_time), F.silu(context_time)

    def _sines(self, t: Tensor) -> Tensor:
        dtype = self._net.dtype
        return self._net.time_proj(t.to(dtype) * 1000).to(dtype)

    def _run(
        self, blocks: Iterable[Any], h: Tensor, modulation: Tensor, positions: Tensor, sequence: PackedSequence
    ) -> Tensor:
        """Runs blocks of parallel attention and feed-forward, whether joint or of one token type."""
        shift, scale, gate = modulation.chunk(3, dim=-1)
        with self._adapted_layers.over(sequence):
            for block in blocks:
                attn, norm_h = block.attn, (1 + scale) * block.norm(h) + shift
                q, k, v = (layer(norm_h).unflatten(-1, (attn.heads, -1)) for layer in (attn.to_q, attn.to_k, attn.to_v))
                attn_output = self._attend(attn.norm_q(q.float()), attn.norm_k(k.float()), v, positions, sequence)
                h = h + gate * (attn.to_out[0](attn_output) + block.ff(norm_h))
        return h


class DualForward(PackedForward):
    def _constants(self, state: State) -> Constants:
        net, per, image_length = self._net, state.per, state.x.shape[1]
        references = per.get("references")
        positions = torch.stack(net.pos_embed(torch.cat([state.ids["text_ids"], state.ids["image_ids"]])))
        text_length = per["text"].shape[1]
        return Constants(
            text=net.context_embedder(per["text"]),
            references=None if references is None else net.x_embedder(references),
            channels=per.get("channels"),
            pooled=per.get("pooled"),
            text_positions=positions[:, :text_length],
            image_positions=positions[:, text_length : text_length + image_length],
            reference_positions=positions[:, text_length + image_length :],
        )

    def _image(self, x: Tensor, batch: PackedBatch) -> Tensor:
        """Returns images and references as input of the first block."""
        channels = batch.constants.channels
        with self._adapted_layers.over(batch.image):
            image = self._net.x_embedder(x if channels is None else torch.cat([x, channels], dim=2))
        return batch.visual.interleave(image, batch.constants.references)

    def _dual(
        self,
        block: Any,
        text: Tensor,
        image: Tensor,
        modulations: tuple[Tensor, Tensor],
        norms: tuple[Any, Any],
        batch: PackedBatch,
    ) -> tuple[Tensor, Tensor]:
        """Runs text and image through one of the first blocks. `modulations` of text and image are (1, T, 6 D) each,
        `norms` those before attention."""
        attn, joint, over = block.attn, batch.joint, self._adapted_layers.over
        text_mod, image_mod = (modulation.chunk(6, dim=-1) for modulation in modulations)
        with over(batch.text):
            norm_h = norms[0](text) * (1 + text_mod[1]) + text_mod[0]
            text_qkv = [heads(layer(norm_h), attn) for layer in (attn.add_q_proj, attn.add_k_proj, attn.add_v_proj)]
        with over(batch.visual):
            norm_h = norms[1](image) * (1 + image_mod[1]) + image_mod[0]
            image_qkv = [heads(layer(norm_h), attn) for layer in (attn.to_q, attn.to_k, attn.to_v)]
        q = joint.interleave(attn.norm_added_q(text_qkv[0]), attn.norm_q(image_qkv[0]))
        k = joint.interleave(attn.norm_added_k(text_qkv[1]), attn.norm_k(image_qkv[1]))
        v = joint.interleave(text_qkv[2], image_qkv[2])
        attn_output = joint.deinterleave(self._attend(q, k, v, batch.joint_positions, joint))
        with over(batch.text):
            text = text + text_mod[2] * attn.to_add_out(attn_output[0])
            norm_h = block.norm2_context(text) * (1 + text_mod[4]) + text_mod[3]
            text = text + text_mod[5] * block.ff_context(norm_h)
        with over(batch.visual):
            image = image + image_mod[2] * attn.to_out[0](attn_output[1])
            norm_h = block.norm2(image) * (1 + image_mod[4]) + image_mod[3]
            image = image + image_mod[5] * block.ff(norm_h)
        return text, image

    def _image_velocities(self, h: Tensor, time: Tensor, batch: PackedBatch) -> Tensor:
        """Returns the images' velocities for the joint sequence after all blocks. `time` is (B, D)."""
        image = batch.visual.deinterleave(batch.joint.deinterleave(h)[1])[0]
        norm = self._net.norm_out
        scale, shift = batch.image.expand_to_tokens(norm.linear(norm.silu(time).to(h.dtype))).chunk(2, dim=-1)
        with self._adapted_layers.over(batch.image):
            return self._net.proj_out(norm.norm(image) * (1 + scale) + shift)


def heads(tokens: Tensor, attn: Any) -> Tensor:
    """Converts (1, T, heads x width) to (1, T, heads, width)."""
    return tokens.unflatten(-1, (-1, attn.head_dim))


class PackedFlux1(DualForward):
    def _velocities(self, x: Tensor, batch: PackedBatch, inputs: StepInputs) -> Tensor:
        net = self._net
        time = self._time(batch, inputs)
        active = F.silu(time)
        text, image = batch.constants.text, self._image(x, batch)
        for block in net.transformer_blocks:
            modulations = (
                batch.text.expand_to_tokens(block.norm1_context.linear(active)),
                batch.visual.expand_to_tokens(block.norm1.linear(active)),
            )
            norms = (block.norm1_context.norm, block.norm1.norm)
            text, image = self._dual(block, text, image, modulations, norms, batch)
        h = batch.joint.interleave(text, image)
        for block in net.single_transformer_blocks:
            modulation = batch.joint.expand_to_tokens(block.norm.linear(active))
            with self._adapted_layers.over(batch.joint):
                h = self._single(block, h, modulation, batch)
        return self._image_velocities(h, time, batch)

    def _time(self, batch: PackedBatch, inputs: StepInputs) -> Tensor:
        """Returns the embedding of time, guidance and pooled prompt, (B, D)."""
        net, dtype, pooled = self._net, self._net.dtype, batch.constants.pooled
        arguments = [inputs.t.to(dtype) * 1000]
        if inputs.guidance is not None:
            arguments.append(inputs.guidance.to(dtype) * 1000)
        return net.time_text_embed(*arguments, pooled)

    def _single(self, block: Any, h: Tensor, modulation: Tensor, batch: PackedBatch) -> Tensor:
        attn = block.attn
        shift, scale, gate = modulation.chunk(3, dim=-1)
        norm_h = block.norm.norm(h) * (1 + scale) + shift
        q, k, v = (heads(layer(norm_h), attn) for layer in (attn.to_q, attn.to_k, attn.to_v))
        attn_output = self._attend(attn.norm_q(q), attn.norm_k(k), v, batch.joint_positions, batch.joint)
        mlp_h = block.act_mlp(block.proj_mlp(norm_h))
        return h + gate * block.proj_out(torch.cat([attn_output, mlp_h], dim=-1))


class PackedFlux2(DualForward):
    def _velocities(self, x: Tensor, batch: PackedBatch, inputs: StepInputs) -> Tensor:
        net, dtype = self._net, self._net.dtype
        guidance = None if inputs.guidance is None else inputs.guidance.to(dtype) * 1000
        time = net.time_guidance_embed(inputs.t.to(dtype) * 1000, guidance)
        text, image = batch.constants.text, self._image(x, batch)
        modulations = (
            batch.text.expand_to_tokens(net.double_stream_modulation_txt(time)),
            batch.visual.expand_to_tokens(net.double_stream_modulation_img(time)),
        )
        for block in net.transformer_blocks:
            text, image = self._dual(block, text, image, modulations, (block.norm1_context, block.norm1), batch)
        h = batch.joint.interleave(text, image)
        modulation = batch.joint.expand_to_tokens(net.single_stream_modulation(time)).chunk(3, dim=-1)
        with self._adapted_layers.over(batch.joint):
            for block in net.single_transformer_blocks:
                h = self._single(block.attn, block.norm(h), h, modulation, batch)
        return self._image_velocities(h, time, batch)

    def _single(
        self, attn: Any, norm_h: Tensor, h: Tensor, modulation: tuple[Tensor, ...], batch: PackedBatch
    ) -> Tensor:
        shift, scale, gate = modulation
        attn_in, mlp_h = attn.to_qkv_mlp_proj((1 + scale) * norm_h + shift).tensor_split([3 * attn.inner_dim], dim=-1)
        q, k, v = (heads(part, attn) for part in attn_in.chunk(3, dim=-1))
        attn_output = self._attend(attn.norm_q(q), attn.norm_k(k), v, batch.joint_positions, batch.joint)
        return h + gate * attn.to_out(torch.cat([attn_output, attn.mlp_act_fn(mlp_h)], dim=-1))
