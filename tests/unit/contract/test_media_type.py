from __future__ import annotations

import mimetypes

import pytest

from deployments.contract.job import UNKNOWN, media_type


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("results/t/1/picture.jpeg", "image/jpeg"),
        ("a.JPG", "image/jpeg"),
        ("a.png", "image/png"),
        ("clip.mp4", "video/mp4"),
        ("draft.safetensors", UNKNOWN),
        (".png", UNKNOWN),
    ],
)
def test_kinds_are_told_by_suffixes_on_every_machine(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mimetypes, "guess_type", None)
    assert media_type(name) == kind
