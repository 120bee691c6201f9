"""The generation endpoints: the least that each takes, and about what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from serve_app.conformance import pictures

KLEIN: Final = "gen-3-image-klein"
MAX: Final = "gen-2-max"
PREVIEW: Final = "gen-2-pro-preview"
KONTEXT: Final = "gen-kontext-pro"
PRO: Final = "gen-pro"
FILL: Final = "gen-pro-1.0-fill"
CANNY: Final = "gen-pro-1.0-canny"
VIDEO: Final = "gen-3-video"
ERASE: Final = "gen-tools/erase-v1"
OUTPAINTING: Final = "gen-tools/outpainting-v1"
TRY_ON: Final = "gen-tools/vto-v1"
TRY_ON_2: Final = "gen-tools/vto-v2"
DEBLUR: Final = "gen-tools/deblur-v1"

NO_FINETUNE: Final = "conformance-no-such-finetune"
"""No server has a tuned model of this id, so a request with it can pass validation and never start a task."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    section: str
    """Where the interface, or what settles it, describes the endpoint."""
    minimal: Mapping[str, Any]
    """The least body, small and quick."""
    credits: float
    """About the price of a task of this body."""
    quotes_price: bool = True
    """Whether its response lists cost and megapixels."""
    strict: bool = False
    """Whether it refuses unknown fields."""
    answers: str = "Response: `id`, `polling_url`, `cost`, `input_mp`, `output_mp`."
    """What is said of its response."""


_SMALL: Final = {"width": 64, "height": 64}
_BARE: Final = "Response: `id`, `polling_url` only."
_TOOLS: Final = "All answer `id, polling_url, cost, input_mp, output_mp`."
_FILL: Final = {"image": pictures.photo(), "mask": pictures.mask(), "steps": 15}
_TUNED: Final = {"finetune_id": NO_FINETUNE}

ENDPOINTS: Final[Mapping[str, Endpoint]] = {
    KLEIN: Endpoint("1. gen-3-image-klein", {"prompt": "a red circle", "steps": 1, **_SMALL}, 1, strict=True),
    MAX: Endpoint(
        "2. gen-2-max",
        {"prompt": "a red circle", **_SMALL},
        7,
        answers="Response: `id`, `polling_url` (both required), `cost`, `input_mp`, `output_mp` (numbers or null).",
    ),
    PREVIEW: Endpoint(
        "3. gen-2-pro-preview", {"prompt": "a red circle", **_SMALL}, 3, answers="Response as endpoint 2."
    ),
    KONTEXT: Endpoint("4. gen-kontext-pro", {"prompt": "a red circle"}, 4),
    PRO: Endpoint("5. gen-pro", {"width": 256, "height": 256, "steps": 1}, 5, quotes_price=False, answers=_BARE),
    FILL: Endpoint("6. gen-pro-1.0-fill", _FILL, 5, quotes_price=False, answers=_BARE),
    CANNY: Endpoint(
        "7. gen-pro-1.0-canny",
        {"prompt": "a red circle", "control_image": pictures.photo(), "steps": 15},
        5,
        quotes_price=False,
        answers=_BARE,
    ),
    f"{FILL}-finetuned": Endpoint("8. gen-pro-1.0-fill-finetuned", {**_FILL, **_TUNED}, 5, quotes_price=False),
    f"{CANNY}-finetuned": Endpoint(
        "9. gen-pro-1.0-canny-finetuned",
        {"prompt": "a red circle", "control_image": pictures.photo(), "steps": 15, **_TUNED},
        5,
        quotes_price=False,
    ),
    f"{KLEIN}-finetuned": Endpoint(
        "12. Tuned-model endpoints", {"prompt": "a red circle", "steps": 1, **_SMALL, **_TUNED}, 1, strict=True
    ),
    VIDEO: Endpoint(
        "10. gen-3-video",
        {"mode": "t2v", "prompt": "waves", "duration": 5, "draft": True},
        10,
        quotes_price=False,
        strict=True,
    ),
    ERASE: Endpoint("Decided: tools", {"image": pictures.photo(), "mask": pictures.mask()}, 3, answers=_TOOLS),
    OUTPAINTING: Endpoint(
        "Decided: tools",
        {"input_image": pictures.photo(), "width": 128, "height": 96, "mode": "fast"},
        4.5,
        strict=True,
        answers=_TOOLS,
    ),
    TRY_ON: Endpoint("Decided: tools", {"person": pictures.photo(), "garment": pictures.photo()}, 6, answers=_TOOLS),
    TRY_ON_2: Endpoint("Decided: tools", {"person": pictures.photo(), "garment": pictures.photo()}, 6, answers=_TOOLS),
    DEBLUR: Endpoint("Decided: tools", {"image": pictures.photo()}, 3, answers=_TOOLS),
}
SUBMITTED: Final = (KLEIN, MAX, PREVIEW, KONTEXT, PRO, FILL, CANNY, ERASE, OUTPAINTING, TRY_ON, TRY_ON_2, DEBLUR)
"""Those that a task can be submitted to with no more than a key."""


def price(endpoint: str) -> float:
    """About what a task costs there."""
    found = ENDPOINTS.get(endpoint) or ENDPOINTS.get(endpoint.removesuffix("-finetuned"))
    return found.credits if found else 5.0
