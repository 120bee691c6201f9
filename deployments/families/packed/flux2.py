"""Flux2Transformer2DModel over a row of pictures: all blocks of a kind share their modulation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deployments.families.moment import Moment
from deployments.families.packed.dual import DualForward, heads
from deployments.families.packed.tokens import Packed


class PackedFlux2(DualForward):
    def _velocities(self, x: Tensor, packed: Packed, moment: Moment) -> Tensor:
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
