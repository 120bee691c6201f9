"""What a process without the service's switches is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_app.local.ray_flags import FLAGS
from serve_app.preflight import switches
from serve_app.preflight.finding import Verdict
from serve_app.preflight.switches import PROXY


@pytest.fixture
def started_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    script = tmp_path / "haproxy"
    script.write_text("#!/bin/sh\nexec python serve_app/local/proxy_start.py haproxy\n")
    for name, value in {**FLAGS, PROXY: str(script)}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def verdicts() -> dict[Verdict, str]:
    return {each.verdict: each.told for each in switches.findings("here", switches.read(tuple(FLAGS)), FLAGS)}


def test_all_is_well_with_all_of_them(started_well: pytest.MonkeyPatch) -> None:
    started_well.setenv("RAY_SERVE_HAPROXY_NBTHREAD", "4")
    assert verdicts() == {Verdict.FINE: "as they should be"}


@pytest.mark.parametrize("name", ["RAY_SERVE_ENABLE_HA_PROXY", "RAY_SERVE_USE_GRPC_BY_DEFAULT", "FORWARDED_ALLOW_IPS"])
def test_nothing_is_served_without_a_vital_one(started_well: pytest.MonkeyPatch, name: str) -> None:
    started_well.delenv(name)
    assert verdicts() == {Verdict.REFUSED: f"without {name}={FLAGS[name]}"}


def test_others_are_told_of(started_well: pytest.MonkeyPatch) -> None:
    started_well.setenv("RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S", "10")
    assert verdicts() == {Verdict.UNUSUAL: "without RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S=1"}


def test_a_proxy_as_ray_starts_it_is_told_of(started_well: pytest.MonkeyPatch) -> None:
    started_well.setenv(PROXY, "/usr/sbin/haproxy")
    assert "proxy_start.py" in verdicts()[Verdict.UNUSUAL]


def test_the_documentation_says_what_each_is_for() -> None:
    told = (Path(__file__).parents[3] / "docs" / "settings.md").read_text()
    assert [name for name, value in FLAGS.items() if f"`{name}={value}`" not in told] == []
