"""Flux3Transformer2DModel over a row of pictures.

Text, picture and references first pass through blocks of their own, in which each kind attends to itself; then through
joint ones. Text and references are at time 0 throughout.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.families.moment import Moment
from deployments.families.packed.forward import PackedForward
from deployments.families.packed.row import Row
from deployments.families.packed.tokens import Constants, Packed
from deployments.families.state import State

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

    def _velocities(self, x: Tensor, packed: Packed, moment: Moment) -> Tensor:
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

    def _times(self, moment: Moment) -> tuple[Tensor, Tensor]:
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
