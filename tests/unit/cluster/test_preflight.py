"""What is found before a start: switches that are missing, weights that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.contract.hub_files import CheckpointKind
from serve_app.cluster import gpu_memory
from serve_app.cluster.finding import Finding, Verdict, fine, refusal, together
from serve_app.cluster.gpu_memory import check_weights
from serve_app.cluster.preflight import PROXY, read_switches, switch_findings
from serve_app.cluster.weights import RequiredCheckpoint, required_checkpoints
from serve_app.config import catalog, settings
from serve_app.launcher.ray_flags import FLAGS


def test_the_same_of_several_nodes_is_one_line() -> None:
    findings = [
        fine("code", "node a", "the same"),
        refusal("code", "node b", "another", "install it"),
        fine("code", "node c", "the same"),
    ]
    assert together(findings) == [
        Finding("code", "2 places: node a, node c", Verdict.FINE, "the same"),
        Finding("code", "node b", Verdict.REFUSED, "another", "install it"),
    ]


@pytest.fixture
def started_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    script = tmp_path / "haproxy"
    script.write_text("#!/bin/sh\nexec python serve_app/launcher/proxy_start.py haproxy\n")
    for name, value in {**FLAGS, PROXY: str(script)}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def verdicts() -> dict[Verdict, str]:
    return {each.verdict: each.message for each in switch_findings("here", read_switches(tuple(FLAGS)), FLAGS)}


def test_all_is_well_with_all_of_them(started_well: pytest.MonkeyPatch) -> None:
    started_well.setenv("RAY_SERVE_HAPROXY_NBTHREAD", "4")
    assert verdicts() == {Verdict.FINE: "as they should be"}


def test_others_are_told_of(started_well: pytest.MonkeyPatch) -> None:
    started_well.setenv("RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S", "10")
    assert verdicts() == {Verdict.WARNING: "without RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S=1"}
    started_well.setenv(PROXY, "/usr/sbin/haproxy")
    assert "proxy_start.py" in verdicts()[Verdict.WARNING], "as Ray starts it"


@pytest.mark.parametrize("name", ["RAY_SERVE_ENABLE_HA_PROXY", "RAY_SERVE_USE_GRPC_BY_DEFAULT", "FORWARDED_ALLOW_IPS"])
def test_nothing_is_served_without_a_vital_one(started_well: pytest.MonkeyPatch, name: str) -> None:
    started_well.delenv(name)
    assert verdicts() == {Verdict.REFUSED: f"without {name}={FLAGS[name]}"}


def test_the_documentation_says_what_each_is_for() -> None:
    text = (Path(__file__).parents[3] / "docs" / "settings.md").read_text()
    assert [name for name, value in FLAGS.items() if f"`{name}={value}`" not in text] == []


OWN = RequiredCheckpoint("model", "owner/name", "v1")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the hub, with nothing in it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(gpu_memory, "HF_HUB_OFFLINE", False)
    return tmp_path / "hub"


def check(*checkpoints: RequiredCheckpoint) -> dict[str, tuple[Verdict, str]]:
    return {each.what: (each.verdict, each.message) for each in check_weights(checkpoints, "here")}


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_memory, "gpus", lambda: [4000])


def test_the_bundled_ones_are_here(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    local = settings.load(Path("configs/local.yaml"))
    assert check(*required_checkpoints(local, catalog.load(local))) == {"weights": (Verdict.FINE, "all here")}


def test_those_of_the_hub_are_looked_for_in_its_cache(cache: Path) -> None:
    assert check(OWN)["weights"] == (Verdict.WARNING, "not here yet: owner/name")
    repository = cache / "models--owner--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/v1").write_text(40 * "a")
    snapshot = repository / "snapshots" / (40 * "a")
    (snapshot / "transformer").mkdir(parents=True)
    assert check(OWN)["weights"][0] is Verdict.WARNING, "an empty folder is no checkpoint"
    (snapshot / "transformer/config.json").write_text("{}")
    assert check(OWN)["weights"][0] is Verdict.REFUSED, "without an index it can't be loaded"
    (snapshot / "model_index.json").write_text('{"_class_name": "FluxPipeline"}')
    assert check(OWN)["weights"] == (Verdict.FINE, "all here")


def test_what_can_not_be_fetched_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict, message = check(RequiredCheckpoint("model", str(tmp_path / "nowhere")))["weights"]
    assert (verdict, "nowhere can't be read" in message) == (Verdict.REFUSED, True)
    monkeypatch.setattr(gpu_memory, "HF_HUB_OFFLINE", True)
    verdict, message = check(OWN)["weights"]
    assert (verdict, "owner/name" in message) == (Verdict.REFUSED, True)


@pytest.mark.usefixtures("one_gpu")
@pytest.mark.parametrize(("fraction", "verdict"), [(1.0, Verdict.FINE), (0.5, Verdict.WARNING)])
def test_weights_that_are_larger_than_their_share_of_a_gpu(tmp_path: Path, fraction: float, verdict: Verdict) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(3000))
    findings = list(
        check_weights(
            [RequiredCheckpoint("model", str(tmp_path), kind=CheckpointKind.PRETRAINED, gpus=fraction)], "here"
        )
    )
    assert next(each.verdict for each in findings if each.what == "GPU memory") is verdict
