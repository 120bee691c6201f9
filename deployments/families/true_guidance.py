"""Guidance for checkpoints that no distillation told what it means: every guided step asks the network twice.

From what it makes of no words, a step goes on to what it makes of the prompt and further, `scale` times as far in all
(Ho and Salimans, "Classifier-Free Diffusion Guidance", 2021). At steps in the noise and at the last ones that costs
more than it gives (Kynkäänniemi et al., "Applying Guidance in a Limited Interval Improves Sample and Distribution
Quality in Diffusion Models", 2024).
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from deployments.contract.model import TrueGuidance
from deployments.families.state import State, Wordless


def guided(state: State, guidance: TrueGuidance, per: dict[str, Tensor], ids: dict[str, Tensor]) -> State:
    """`state`, which takes guided steps where its times say so. `per` and `ids` are what an empty prompt gives it."""
    least, most = guidance.between
    scales = [guidance.scale if least <= t <= most else 1.0 for t in state.t[:-1].tolist()]
    twin = replace(state, per=state.per | per, ids=state.ids | ids)
    return replace(state, wordless=Wordless(twin, scales))
