from __future__ import annotations

import pytest
from diffusers.pipelines.flux import pipeline_flux_kontext

from deployments.families import flux1_conditions


@pytest.fixture(autouse=True)
def small_kontext_resolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces Kontext's resolutions of a megapixel, which take minutes on a CPU."""
    for module in (flux1_conditions, pipeline_flux_kontext):
        monkeypatch.setattr(module, "PREFERRED_KONTEXT_RESOLUTIONS", [(48, 128), (64, 64), (96, 48)])
