"""What Flux1 and Flux2 have in common: in the first blocks text and image have layers of their own, but attend to each
other; in the others they are one row."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deployments.families.packed.forward import PackedForward
from deployments.families.packed.tokens import Constants, Packed
from deployments.families.state import State


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
