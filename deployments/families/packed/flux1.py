"""FluxTransformer2DModel over a row of pictures: every block has modulation of its own."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.families.moment import Moment
from deployments.families.packed.dual import DualForward, heads
from deployments.families.packed.tokens import Packed


class PackedFlux1(DualForward):
    def _velocities(self, x: Tensor, packed: Packed, moment: Moment) -> Tensor:
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

    def _time(self, packed: Packed, moment: Moment) -> Tensor:
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
