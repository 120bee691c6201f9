"""Questions are put as the service puts them."""

from __future__ import annotations

from training.evaluation.painters import REQUESTS, model_of
from training.evaluation.pictures import SIZES
from training.worlds.pictures.scene import CANVAS_SIDE


def test_every_ratio_that_clients_can_name_is_asked_for() -> None:
    assert len(set(SIZES)) == len(SIZES) == 16
    assert {(768, 768), (1024, 1024)} <= set(SIZES)


def test_models_run_as_the_local_profile_has_them() -> None:
    for checkpoint, request in REQUESTS.items():
        model = model_of(checkpoint)
        assert (request.get("steps") or model["steps"]) >= 1
        assert model["render_side"] == CANVAS_SIDE * 16


def test_kontext_is_told_the_guidance_that_its_requests_can_not_choose() -> None:
    assert model_of("kontext")["guidance"] == 2.5
    assert model_of("flux3")["guidance"] is None
