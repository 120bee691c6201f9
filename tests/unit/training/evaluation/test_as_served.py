"""The evaluation knows by itself what the service does; here the two are compared."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.media.geometry import DEFAULT_TIER, RATIOS, TIERS, size_for
from serve_app.requests.canny import CannyRequest
from serve_app.requests.fill import FillRequest
from serve_app.requests.image_klein import MAX_STEPS
from serve_app.requests.pro import ProRequest
from training.evaluation import edges, sizes
from training.evaluation.settings import REQUESTS, service_of
from training.worlds.pictures.scene import CANVAS_SIDE


def test_every_ratio_that_clients_can_name_is_asked_for() -> None:
    expected = {name: tuple(size_for(ratio, TIERS[DEFAULT_TIER])) for name, ratio in RATIOS.items()}
    assert dict(sizes.NAMED_SIZES) == expected
    assert {(768, 768), (1024, 1024)} <= set(sizes.SIZES)


def test_jobs_have_what_requests_have_by_default() -> None:
    def defaults(form: Any, *names: str) -> list[Any]:
        return [form.model_fields[name].default for name in names]

    assert REQUESTS["flux3"].steps == MAX_STEPS
    pro = REQUESTS["flux"]
    assert [pro.steps, pro.guidance, pro.interval] == defaults(ProRequest, "steps", "guidance", "interval")
    assert [REQUESTS["fill"].steps, REQUESTS["fill"].guidance] == defaults(FillRequest, "steps", "guidance")
    assert [REQUESTS["canny"].steps, REQUESTS["canny"].guidance] == defaults(CannyRequest, "steps", "guidance")
    assert list(edges.THRESHOLDS) == defaults(CannyRequest, "canny_low_threshold", "canny_high_threshold")


def test_models_run_as_the_local_profile_has_them() -> None:
    for checkpoint in REQUESTS:
        service = service_of(checkpoint)
        assert service.steps >= 1
        assert service.render_side == CANVAS_SIDE * 16
    with pytest.raises(ValueError, match="runs no bundled/rewriter"):
        service_of("rewriter")
