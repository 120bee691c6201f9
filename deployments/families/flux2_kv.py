"""Flux2 Klein KV: an editor whose references are computed once for all steps.

Runs the components of diffusers' `Flux2KleinKVPipeline`. References attend to themselves alone, so their keys and
values of the first step serve every later one, which costs as much as without references. A job that runs alone in
float32 gets, bit by bit, the stock pipeline's picture. Pictures with references take their steps one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from deployments.families.flux2 import Flux2
from deployments.families.flux2_prompts import EncodedPrompt
from deployments.families.moment import Moment
from deployments.families.prepared_request import PreparedRequest
from deployments.families.state import State


@dataclass(eq=False, slots=True)
class KVState(State):
    cache: Any = None
    """Keys and values of the references, from the first step on: a `Flux2KVCache`."""


class Flux2KV(Flux2):
    @torch.inference_mode()
    def velocity(self, state: State, moment: Moment) -> Tensor:
        if not isinstance(state, KVState):
            return super().velocity(state, moment)
        dtype, per, ids, count = self.transformer.dtype, state.per, state.ids, state.x.shape[1]
        inputs: dict[str, Any] = {
            "timestep": moment.t.to(dtype),
            "guidance": None,
            "encoder_hidden_states": per["text"],
            "txt_ids": ids["text_ids"],
            "return_dict": False,
        }
        own, of_references = ids["picture_ids"].split([count, len(ids["picture_ids"]) - count])
        if state.i > 0:
            [moved] = self.transformer(
                hidden_states=state.x.to(dtype), img_ids=own, kv_cache=state.cache, kv_cache_mode="cached", **inputs
            )
            return moved.float()
        moved, state.cache = self.transformer(
            hidden_states=torch.cat([per["references"], state.x], dim=1).to(dtype),
            img_ids=torch.cat([of_references, own]),
            kv_cache_mode="extract",
            num_ref_tokens=len(of_references),
            **inputs,
        )
        return moved.float()

    @torch.inference_mode()
    def packed(self, x: Tensor, states: Sequence[State], moment: Moment) -> Tensor:
        if not any(isinstance(state, KVState) for state in states):
            return super().packed(x, states, moment)
        moved = []
        for k, state in enumerate(states):
            with self._packed.adapted(state.adapter):
                moved.append(self.velocity(state, Moment(moment.t[k : k + 1], moment.t_next[k : k + 1])))
        return torch.cat(moved, dim=1)

    def _state(self, request: PreparedRequest, prompt: EncodedPrompt) -> State:
        state = super()._state(request, prompt)
        if "references" not in state.per:
            return state
        return KVState(**{each.name: getattr(state, each.name) for each in fields(state)})
