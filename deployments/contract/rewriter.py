"""How a replica is to run the language model that rewrites prompts."""

from __future__ import annotations

from dataclasses import dataclass

from deployments.contract.model import Precision
from deployments.telemetry.logs import USUAL_LOGS, LogSpec


@dataclass(frozen=True, slots=True)
class RewriterSpec:
    """`checkpoint` is a hub id, a folder, or `bundled/<name>`, in the format of a causal language model.

    With an `instruction`, a model that knows chats is told so and given the prompt; what it answers is the new prompt.
    Any other model continues the prompt. Either writes at most `max_new_tokens`, the likelier ones more surely the
    lower the `temperature` is; 0 always takes the likeliest. `edit_instruction` and `ratio_instruction` are for prompts
    that say how to change a picture, and for the question which ratio suits one.
    """

    checkpoint: str
    revision: str | None = None
    device: str = "auto"
    dtype: Precision = "auto"
    instruction: str = ""
    edit_instruction: str = ""
    ratio_instruction: str = ""
    max_new_tokens: int = 64
    temperature: float = 0.7
    threads: int | None = None
    logs: LogSpec = USUAL_LOGS
