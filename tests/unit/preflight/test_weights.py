"""Whether the weights of a profile are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_app.config import catalog, settings
from serve_app.preflight import weights
from serve_app.preflight.finding import Verdict
from serve_app.weights.wanted import Wanted, wanted

OWN = Wanted("lane", "owner/name", "v1")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the hub, with nothing in it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(weights, "HF_HUB_OFFLINE", False)
    return tmp_path / "hub"


def seen(*wanted: Wanted) -> dict[str, tuple[Verdict, str]]:
    return {each.what: (each.verdict, each.told) for each in weights.look(wanted, "here")}


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "gpus", lambda: [4000])


def test_the_bundled_ones_are_here(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    local = settings.load(Path("configs/local.yaml"))
    assert seen(*wanted(local, catalog.load(local))) == {"weights": (Verdict.FINE, "all here")}


def test_those_of_the_hub_are_looked_for_in_its_cache(cache: Path) -> None:
    assert seen(OWN)["weights"] == (Verdict.UNUSUAL, "not here yet: owner/name")
    repository = cache / "models--owner--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/v1").write_text("abc")
    (repository / "snapshots/abc/transformer").mkdir(parents=True)
    assert seen(OWN)["weights"][0] is Verdict.UNUSUAL, "an empty folder is no checkpoint"
    (repository / "snapshots/abc/transformer/config.json").write_text("{}")
    assert seen(OWN)["weights"] == (Verdict.FINE, "all here")


def test_without_a_hub_they_have_to_be_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "HF_HUB_OFFLINE", True)
    verdict, told = seen(OWN)["weights"]
    assert (verdict, "owner/name" in told) == (Verdict.REFUSED, True)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    verdict, told = seen(Wanted("lane", str(tmp_path / "nowhere")))["weights"]
    assert (verdict, "nowhere can't be read" in told) == (Verdict.REFUSED, True)


@pytest.mark.usefixtures("one_gpu")
@pytest.mark.parametrize(("share", "verdict"), [(1.0, Verdict.FINE), (0.5, Verdict.UNUSUAL)])
def test_weights_that_are_larger_than_their_share_of_a_gpu(tmp_path: Path, share: float, verdict: Verdict) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(3000))
    found = list(weights.look([Wanted("lane", str(tmp_path), gpus=share)], "here"))
    assert next(each.verdict for each in found if each.what == "GPU memory") is verdict
