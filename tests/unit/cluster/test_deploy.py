"""The end of a deployment, from the statuses that Serve reports."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from serve_app.cluster import deploy

FAULT = "A replica failed to start with exception. Error:\nmodel fault: no unet\nfor clients: no unet"


def status(app: str, **deployments: tuple[str, str]) -> Any:
    parts = {name: SimpleNamespace(status=state, message=message) for name, (state, message) in deployments.items()}
    application = SimpleNamespace(status=app, message="it failed", deployments=parts)
    return SimpleNamespace(applications={deploy.APP_NAME: application})


RUNNING = ("HEALTHY", "")
LOADING = ("UPDATING", "")
FAILING = ("UPDATING", FAULT)
FAILED = ("DEPLOY_FAILED", FAULT)


@pytest.fixture
def statuses(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns the list of statuses that Serve reports, a second apart; the last one stays."""
    answers, seconds = list[Any](), iter(range(1000))
    monkeypatch.setattr(deploy.serve, "RunTarget", lambda *_, **__: None)
    monkeypatch.setattr(deploy.serve, "run_many", lambda *_, **__: None)
    monkeypatch.setattr(deploy.serve, "status", lambda: answers.pop(0) if len(answers) > 1 else answers[0])
    monkeypatch.setattr(deploy.time, "sleep", lambda _: None)
    monkeypatch.setattr(deploy.time, "monotonic", lambda: next(seconds))
    return answers


def faults(models: tuple[str, ...] = ("a", "b")) -> dict[str, str]:
    return {name: fault.reason for name, fault in deploy.deploy_application(cast(Any, None), models).items()}


def test_state_from_before_a_deployment_is_not_its_end(statuses: list[Any]) -> None:
    statuses += [status("DEPLOYING", a=FAILED), status("DEPLOYING", a=RUNNING), status("DEPLOYING", a=LOADING)]
    statuses += [status("RUNNING", a=RUNNING)]
    assert faults() == {}


def test_model_that_loads_is_waited_for_beside_one_that_failed(statuses: list[Any]) -> None:
    statuses += [status("DEPLOY_FAILED", a=FAILED, b=LOADING, ingress=RUNNING)] * 5
    statuses += [status("DEPLOY_FAILED", a=FAILED, b=RUNNING, ingress=RUNNING)]
    assert faults() == {"a": "no unet"}


def test_other_deployment_that_failed_ends_it(statuses: list[Any]) -> None:
    statuses += [status("DEPLOY_FAILED", a=FAILING, ingress=("DEPLOY_FAILED", "x"))]
    with pytest.raises(RuntimeError, match="it failed"):
        faults()
