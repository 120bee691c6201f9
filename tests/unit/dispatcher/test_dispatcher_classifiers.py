from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from deployments.contract.moderation import ClassifierSpec, ModeratorSpec, Scores
from serve_app.dispatcher.deployment import classify_by


@pytest.mark.parametrize("guarded", [False, True])
async def test_classifiers_without_weights_are_here_and_the_highest_score_of_all_counts(
    tmp_path: Path, guarded: bool
) -> None:
    async def guard(text: str) -> Scores:
        return {"hate": 0.9}

    handle = SimpleNamespace(moderate_text=SimpleNamespace(remote=guard)) if guarded else None
    text = (ClassifierSpec("lexicon"), *([ClassifierSpec("guard", "any")] if guarded else []))
    spec = ModeratorSpec(text, (ClassifierSpec("skin"),), tmp_path.as_uri())
    moderate_text, moderate_object = classify_by(spec, cast(Any, handle))
    scores = await moderate_text("a very bloody murder scene")
    assert scores["violence"] > 0.6
    assert scores.get("hate", 0) == (0.9 if guarded else 0)
    with pytest.raises(FileNotFoundError):
        await moderate_object("results/gone.jpeg")  # asked here alone
