"""Checks of GPU memory, and the profiles for GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_app.cluster.checks import gpu
from serve_app.cluster.checks.gpu import check_gpu_memory, gpu_requirements
from serve_app.cluster.checks.result import Verdict
from serve_app.config import catalog, settings
from serve_app.config.settings import Settings

PROFILES = ("single-gpu", "gpu-24gb", "gpu-48gb", "gpu-141gb", "cluster")


@pytest.fixture(autouse=True)
def machine(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has one GPU."""
    monkeypatch.setattr(gpu, "find_gpus", lambda: [80 * 2**30])
    monkeypatch.chdir(repository)


def load_profile(profile: str) -> Settings:
    return settings.load(Path(f"configs/{profile}.yaml"))


@pytest.mark.parametrize("profile", PROFILES)
def test_replicas_of_a_profile_fit_their_shares(profile: str) -> None:
    config = load_profile(profile)
    served_catalog = catalog.load(config)
    assert [result.verdict for result in check_gpu_memory(config, served_catalog)] == [Verdict.FINE]
    assert all(each.weights_gb and each.gpu_fraction for each in gpu_requirements(config, served_catalog))


@pytest.mark.parametrize("profile", PROFILES[:-1])
def test_permanent_replicas_leave_memory_for_any_other_model(profile: str) -> None:
    config = load_profile(profile)
    on_demand = {
        f"models.{name}": model.ray_actor_options.get("num_gpus", 0)
        for name, model in config.models.items()
        if model.enabled and model.autoscaling_config.min_replicas == 0 and name != "eraser"
    }
    replicas = gpu_requirements(config, catalog.load(config))
    always = sum(each.gpu_fraction for each in replicas if each.name not in on_demand)
    assert always + max(on_demand.values()) <= 1


@pytest.mark.parametrize("profile", PROFILES)
def test_endpoints_of_one_checkpoint_have_one_price(profile: str) -> None:
    config = load_profile(profile)
    served_catalog = catalog.load(config)
    prices: dict[str, set[object]] = {}
    for each in served_catalog.endpoints.values():
        if each.request in ("image-klein", "gen2-max", "gen2-pro", "kontext", "pro"):
            checkpoint = config.model(each.model).checkpoint or served_catalog.models[each.model].checkpoint
            prices.setdefault(checkpoint, set()).add(each.price)
    assert all(len(each) == 1 for each in prices.values())


def test_documentation_has_the_memory_of_each_profile(repository: Path) -> None:
    rows: dict[str, dict[str, str]] = {}
    for profile in PROFILES:
        config = load_profile(profile)
        for each in gpu_requirements(config, catalog.load(config)):
            cells = rows.setdefault(f"{each.name.removeprefix('models.')} | {each.weights_gb:.1f}", {})
            cells[profile] = f"{each.total_gb:.1f} of {each.share_gb:.1f}"
    lines = [f"| GB | weights | {' | '.join(f'`{profile}`' for profile in PROFILES)} |", "|---" * 7 + "|"]
    lines += [
        f"| {row} | {' | '.join(cells.get(profile, '') for profile in PROFILES)} |" for row, cells in rows.items()
    ]
    assert "\n".join(lines) in (repository / "docs/models.md").read_text(), "\n".join(lines)


def test_model_that_does_not_fit_is_named_with_its_memory() -> None:
    config = load_profile("single-gpu")
    ltx2 = config.model("ltx2").model_copy(update={"enabled": True, "ray_actor_options": {"num_gpus": 0.5}})
    wrong = config.model_copy(update={"models": config.models | {"ltx2": ltx2}})
    [result] = check_gpu_memory(wrong, catalog.load(wrong))
    assert result.verdict is Verdict.REFUSED
    assert "models.ltx2 needs 86.1 GB (75.0 of weights" in result.message
    assert "its share of a GPU is 42.0 GB" in result.message


def test_replica_on_a_gpu_without_share_is_refused() -> None:
    config = load_profile("single-gpu")
    rewriter = config.rewriter.model_copy(update={"device": "cuda", "actor": {}})
    [result] = check_gpu_memory(config.model_copy(update={"rewriter": rewriter}), catalog.load(config))
    assert result.verdict is Verdict.REFUSED
    assert "rewriter runs on cuda without num_gpus" in result.message


def test_machine_without_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "find_gpus", list)
    config = load_profile("gpu-24gb")
    [result] = check_gpu_memory(config, catalog.load(config))
    assert result.verdict is Verdict.REFUSED
    assert "models.flux2-pro-snapshot, models.deblur need one" in result.message
