"""One request of a load, decided before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from serve_app.load.shape import Shape, Size


@dataclass(frozen=True, slots=True)
class Request:
    number: int
    """Its place in the whole load."""
    moment: float
    """When it is to be sent, seconds after the start."""
    endpoint: str
    shape: Shape
    tenant: str
    prompt: str
    seed: int
    reference_size: Size
    """Of the pictures that are sent along."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, as they are."""

    @property
    def kind(self) -> str:
        """What requests that cost the same share."""
        return f"{self.endpoint}, {self.shape}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, fields: Mapping[str, Any]) -> Self:
        shape = fields["shape"]
        size = shape["size"]
        return cls(
            **{
                **fields,
                "shape": Shape(**{**shape, "size": None if size is None else Size(*size)}),
                "reference_size": Size(*fields["reference_size"]),
            }
        )
