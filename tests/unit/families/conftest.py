from __future__ import annotations

import pytest
from diffusers.pipelines.flux import pipeline_flux_kontext

from deployments.families import flux1_conditions


@pytest.fixture(autouse=True)
def kontext_is_trained_on_small_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that it was really trained on have a megapixel, minutes on a processor."""
    for module in (flux1_conditions, pipeline_flux_kontext):
        monkeypatch.setattr(module, "PREFERRED_KONTEXT_RESOLUTIONS", [(48, 128), (64, 64), (96, 48)])
