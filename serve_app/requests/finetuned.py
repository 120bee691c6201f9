"""Requests to `-finetuned` endpoints: those of the base, and which tuned model to use how strongly."""

from __future__ import annotations

from functools import cache
from typing import Annotated

from pydantic import BaseModel, Field, create_model

from serve_app.requests.fields import JSON_REAL, GenerationRequest, NullIsUnset


class FinetunedFields(BaseModel):
    finetune_id: Annotated[str, Field(min_length=1, max_length=128)] = Field(
        description="The tuned model, by the id that its upload answered.", examples=["4f0c1d2e9a7b6c5d"]
    )
    finetune_strength: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False), JSON_REAL, NullIsUnset()] = Field(
        default=1.1, description="How strongly it applies: 0 not at all, 1 as it was trained.", examples=[1.1]
    )

    def finetune(self) -> tuple[str, float] | None:
        return self.finetune_id, self.finetune_strength


@cache
def finetuned(base: type[GenerationRequest]) -> type[GenerationRequest]:
    """The request of a base endpoint with the two fields added."""
    return create_model(f"Tuned{base.__name__}", __base__=(FinetunedFields, base))  # type: ignore[call-overload]
