"""Clients of the moderator and of the classifiers in this process."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from deployments.contract.moderation import ClassifierSpec, ModeratorSpec, Scores
from serve_app.dispatcher.clients import ModerationClient


@pytest.mark.parametrize("guarded", [False, True])
async def test_highest_score_of_local_and_remote_classifiers_counts(tmp_path: Path, guarded: bool) -> None:
    async def guard(text: str) -> Scores:
        return {"hate": 0.9}

    handle = SimpleNamespace(moderate_text=SimpleNamespace(remote=guard)) if guarded else None
    text = (ClassifierSpec("lexicon"), *([ClassifierSpec("guard", "any")] if guarded else []))
    spec = ModeratorSpec(text, (ClassifierSpec("skin"),), tmp_path.as_uri())
    client = ModerationClient(spec, cast(Any, handle))
    scores = await client.moderate_text("a very bloody murder scene")
    assert scores["violence"] > 0.6
    assert scores.get("hate", 0) == (0.9 if guarded else 0)
    with pytest.raises(FileNotFoundError):
        await client.moderate_object("results/gone.jpeg")  # only classified in this process
