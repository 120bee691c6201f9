"""Checks before a start: Ray flags and weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.contract.hub_files import CheckpointKind
from serve_app.cluster.checkpoints import RequiredCheckpoint, required_checkpoints
from serve_app.cluster.checks import weights
from serve_app.cluster.checks.proxy import PROXY_BINARY, check_flags, read_flags
from serve_app.cluster.checks.result import CheckResult, Verdict, merge_places
from serve_app.cluster.checks.weights import check_weights
from serve_app.config import catalog, settings
from serve_app.launcher.ray_flags import FLAGS


def test_equal_results_of_several_nodes_are_one() -> None:
    results = [
        CheckResult("code", "node a", Verdict.FINE, "the same"),
        CheckResult("code", "node b", Verdict.REFUSED, "another", "install it"),
        CheckResult("code", "node c", Verdict.FINE, "the same"),
    ]
    assert merge_places(results) == [
        CheckResult("code", "2 places: node a, node c", Verdict.FINE, "the same"),
        CheckResult("code", "node b", Verdict.REFUSED, "another", "install it"),
    ]


@pytest.fixture
def set_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    script = tmp_path / "haproxy"
    script.write_text("#!/bin/sh\nexec python serve_app/launcher/proxy_start.py haproxy\n")
    for name, value in {**FLAGS, PROXY_BINARY: str(script)}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def verdicts() -> dict[Verdict, str]:
    return {each.verdict: each.message for each in check_flags(read_flags(FLAGS), FLAGS)}


def test_set_flags_are_fine(set_flags: pytest.MonkeyPatch) -> None:
    set_flags.setenv("RAY_SERVE_HAPROXY_NBTHREAD", "4")
    assert verdicts() == {Verdict.FINE: "all set"}


def test_missing_flag_that_is_not_vital_is_a_warning(set_flags: pytest.MonkeyPatch) -> None:
    set_flags.setenv("RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S", "10")
    assert verdicts() == {Verdict.WARNING: "without RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S=1"}
    set_flags.setenv(PROXY_BINARY, "/usr/sbin/haproxy")
    assert "proxy_start.py" in verdicts()[Verdict.WARNING], "as Ray starts it"


@pytest.mark.parametrize("name", ["RAY_SERVE_ENABLE_HA_PROXY", "RAY_SERVE_USE_GRPC_BY_DEFAULT", "FORWARDED_ALLOW_IPS"])
def test_missing_vital_flag_is_refused(set_flags: pytest.MonkeyPatch, name: str) -> None:
    set_flags.delenv(name)
    assert verdicts() == {Verdict.REFUSED: f"without {name}={FLAGS[name]}"}


def test_documentation_lists_every_flag(repository: Path) -> None:
    text = (repository / "docs/settings.md").read_text()
    assert [name for name, value in FLAGS.items() if f"`{name}={value}`" not in text] == []


CHECKPOINT = RequiredCheckpoint("model", "owner/name", "v1")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns an empty cache of the hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(weights, "HF_HUB_OFFLINE", False)
    return tmp_path / "hub"


def check(*checkpoints: RequiredCheckpoint) -> dict[str, tuple[Verdict, str]]:
    return {each.what: (each.verdict, each.message) for each in check_weights(checkpoints)}


def test_bundled_weights_are_here(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    local = settings.load(Path("configs/local.yaml"))
    assert check(*required_checkpoints(local, catalog.load(local))) == {"weights": (Verdict.FINE, "all here")}


def test_hub_weights_are_looked_for_in_the_cache(cache: Path) -> None:
    assert check(CHECKPOINT)["weights"] == (Verdict.WARNING, "not here yet: owner/name")
    repository = cache / "models--owner--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/v1").write_text(40 * "a")
    snapshot = repository / "snapshots" / (40 * "a")
    (snapshot / "transformer").mkdir(parents=True)
    assert check(CHECKPOINT)["weights"][0] is Verdict.WARNING, "an empty folder is no checkpoint"
    (snapshot / "transformer/config.json").write_text("{}")
    assert check(CHECKPOINT)["weights"][0] is Verdict.REFUSED, "without an index it can't be loaded"
    (snapshot / "model_index.json").write_text('{"_class_name": "FluxPipeline"}')
    assert check(CHECKPOINT)["weights"] == (Verdict.FINE, "all here")


def test_weights_that_can_not_be_fetched_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict, message = check(RequiredCheckpoint("model", str(tmp_path / "nowhere")))["weights"]
    assert (verdict, "nowhere can't be read" in message) == (Verdict.REFUSED, True)
    monkeypatch.setattr(weights, "HF_HUB_OFFLINE", True)
    verdict, message = check(CHECKPOINT)["weights"]
    assert (verdict, "owner/name" in message) == (Verdict.REFUSED, True)


@pytest.mark.parametrize(("fraction", "verdict"), [(1.0, Verdict.FINE), (0.5, Verdict.WARNING)])
def test_weights_above_their_share_of_a_gpu_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fraction: float, verdict: Verdict
) -> None:
    monkeypatch.setattr(weights, "find_gpus", lambda: [4000])
    (tmp_path / "model.safetensors").write_bytes(bytes(3000))
    checkpoint = RequiredCheckpoint("model", str(tmp_path), kind=CheckpointKind.PRETRAINED, gpus=fraction)
    assert next(each.verdict for each in check_weights([checkpoint]) if each.what == "GPU memory") is verdict
