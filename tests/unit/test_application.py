"""What is bound, and what binding it takes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from pydantic import ValidationError
from ray import serve
from ray.serve._private.api import call_user_app_builder_with_args_if_necessary
from ray.serve._private.build_app import build_app
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import ServeDeploySchema
from ray.serve.scripts import build as ray_build

from serve_app import application
from serve_app.encryption import new_key

# Ray would have the interval of its reports in the environment, where it is one for all.
pytestmark = pytest.mark.filterwarnings("ignore:The `metrics_interval_s` field:DeprecationWarning")

SCRIPT = """
import sys
from pathlib import Path

from serve_app import application
from serve_app.config.settings import load

application.build(load(Path(sys.argv[1])))
print([name for name in ("torch", "diffusers", "transformers", "mcp", "serve_app.api.app") if name in sys.modules])
"""


def test_building_imports_neither_models_nor_pages(repository: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(repository / "configs/local.yaml")],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(("least", "most", "decided"), [(1, 1, False), (3, 3, False), (0, 1, True), (1, 2, True)])
def test_only_autoscaled_deployments_report_load(least: int, most: int, decided: bool) -> None:
    options = application._replicas(AutoscalingConfig(min_replicas=least, max_replicas=most))
    assert ("autoscaling_config" in options) is decided
    assert options.get("num_replicas") == (None if decided else most)


SECRETS = {
    "GEN_REDIS__URL": "rediss://:redis-password@redis.example.com:6379/0",
    "GEN_SEALING__KEYS": f'["{new_key()}"]',
    "GEN_METRICS__TOKEN": "metrics-token",
    "GEN_OBJECTS__URL": "s3://bucket/gen",
    "GEN_OBJECTS__OPTIONS": '{"region": "eu-central-1", "secret_access_key": "object-secret"}',
    "GEN_ACCOUNTS__OPENID": '{"issuer": "https://id.example", "client_id": "gen", "client_secret": "openid-secret"}',
}
HIDDEN = ("redis-password", SECRETS["GEN_SEALING__KEYS"][2:-2], "metrics-token", "object-secret", "openid-secret")


@pytest.fixture
def config(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings that name no secret, beside an environment that has them all."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    values = yaml.safe_load((repository / "configs/local.yaml").read_text())
    values |= {"data_dir": str(tmp_path / "data"), "catalog": str(repository / "configs/catalog.yaml")}
    values["moderation"]["text"].append({"backend": "guard", "checkpoint": "any"})
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def build_deployments(config: Path, **args: str) -> dict[str, serve.Deployment]:
    """As Ray's own commands build it, by the names of deployments."""
    bound = call_user_app_builder_with_args_if_necessary(application.app, {"config": str(config), **args})
    return {each.name: each for each in build_app(bound, name="any", make_deployment_handle=_handle).deployments}


def versions(config: Path, **args: str) -> dict[str, str]:
    return {name: str(deployment.version) for name, deployment in build_deployments(config, **args).items()}


def test_serve_stores_no_secret(config: Path) -> None:
    deployments = build_deployments(config)
    assert {"Ingress", "Dispatcher", "WebhookSender", "Moderator", "flux3-klein"} <= set(deployments)
    for name, deployment in deployments.items():
        parts = list(_iter_stored_bytes(deployment))
        assert not [secret for secret in HIDDEN for part in parts if secret.encode() in part], name
    assert any(b"eu-central-1" in part for part in _iter_stored_bytes(deployments["flux3-klein"]))


def test_deployments_find_their_secrets(config: Path) -> None:
    deployments = build_deployments(config)
    [bound] = deployments["WebhookSender"].init_args
    assert bound.settings().redis_url == SECRETS["GEN_REDIS__URL"]
    spec = deployments["flux3-klein"].init_args[0]
    assert spec.objects_secrets() == {"secret_access_key": "object-secret"}


def test_classifiers_without_weights_need_no_deployment(config: Path) -> None:
    values = yaml.safe_load(config.read_text())
    values["moderation"]["text"].pop()
    config.write_text(yaml.safe_dump(values))
    deployments = build_deployments(config)
    assert "Moderator" not in deployments
    assert [each.backend for each in cast(Any, deployments["Dispatcher"].init_args)[4].text] == ["lexicon"]


def test_max_replicas_per_node_reaches_serve_without_a_restart(config: Path) -> None:
    values = yaml.safe_load(config.read_text())
    names = {"service": "Ingress", "dispatcher": "Dispatcher", "webhooks": "WebhookSender", "moderation": "Moderator"}
    before = versions(config)
    for limit, section in enumerate(names, start=1):
        values[section]["max_replicas_per_node"] = limit
    config.write_text(yaml.safe_dump(values))
    deployments = build_deployments(config)
    assert [deployments[name]._replica_config.max_replicas_per_node for name in names.values()] == [1, 2, 3, 4]
    assert versions(config) == before, "Ray itself sees that it changed"


def test_arguments_are_checked(config: Path) -> None:
    with pytest.raises(ValidationError, match="cofnig"):
        call_user_app_builder_with_args_if_necessary(application.app, {"cofnig": str(config)})
    with pytest.raises(FileNotFoundError, match=r"nowhere\.yaml"):
        call_user_app_builder_with_args_if_necessary(application.app, {"config": "nowhere.yaml"})


def test_serve_build_writes_a_file_that_serve_deploy_takes(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = config.parent / "serve.yaml"
    monkeypatch.setenv("GEN_CONFIG", str(config))
    command = ["serve_app.application:built", "--output-path", str(target)]
    assert ray_build.main(command, standalone_mode=False) is None
    [application] = ServeDeploySchema.model_validate(yaml.safe_load(target.read_text())).applications
    assert application.import_path == "serve_app.application:built"
    assert {"Ingress", "Dispatcher", "flux3-klein"} <= {deployment.name for deployment in application.deployments}
    assert not [secret for secret in HIDDEN if secret in target.read_text()]
    monkeypatch.delenv("GEN_CONFIG")
    with pytest.raises(ValueError, match="GEN_CONFIG is not set"):
        ray_build.main(command, standalone_mode=False)


@pytest.mark.parametrize(
    ("model", "checkpoint", "expected_name"),
    [("deblur", None, "deconvolution"), ("flux3-klein", "simulated/5ms", "simulated/5ms")],
)
@pytest.mark.parametrize(("setting", "value"), [("text_encoder", "flux"), ("cfg", {"scale": 2})])
def test_prompt_settings_of_a_model_without_prompts_are_refused(
    config: Path, model: str, checkpoint: str | None, expected_name: str, setting: str, value: object
) -> None:
    values = yaml.safe_load(config.read_text())
    values["text_encoders"] = {"flux": {"checkpoint": "bundled/flux"}}
    values["models"][model] |= {setting: value, **({"checkpoint": checkpoint} if checkpoint else {})}
    config.write_text(yaml.safe_dump(values))
    with pytest.raises(ValueError, match=rf"models\.{model}\.{setting} must be null: {expected_name} reads no prompts"):
        build_deployments(config)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"backend": "engine"}, "engine is needed for backend: engine"),
        ({"engine": {"kind": "sglang", "url": "http://a"}}, "engine is needed for backend: engine"),
        (
            {"backend": "engine", "engine": {"kind": "sglang", "url": "http://a"}, "dtype": "float16"},
            "dtype must be left out",
        ),
    ],
)
def test_settings_that_an_engine_does_not_read_are_refused(config: Path, model: dict[str, Any], message: str) -> None:
    values = yaml.safe_load(config.read_text())
    values["models"]["flux1-dev"] = model
    config.write_text(yaml.safe_dump(values))
    with pytest.raises(ValueError, match=message):
        build_deployments(config)


def test_missing_store_is_an_error_before_the_start(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEN_REDIS__URL")
    with pytest.raises(ValueError, match="GEN_REDIS__URL"):
        build_deployments(config)


CHANGES: list[tuple[dict[str, str], set[str]]] = [
    ({"GEN_MODELS__FLUX3-KLEIN__STEP_LIMIT_S": "99"}, {"flux3-klein", "Dispatcher", "Ingress"}),
    ({"GEN_WEBHOOKS__TIMEOUT_S": "7"}, {"WebhookSender", "Dispatcher", "Ingress"}),
    ({"GEN_SERVICE__MAX_BODY_MB": "3"}, {"Ingress"}),
    ({"GEN_MODERATION__MAX_BATCH": "3"}, {"Moderator", "Dispatcher"}),
    ({"GEN_METRICS__GRAFANA_URL": "https://grafana.test/"}, {"Ingress"}),
    ({"GEN_METRICS__PORT": "9999", "GEN_RAY__ADDRESS": "auto"}, set()),
    ({"GEN_SERVICE__NUM_REPLICAS": "3", "GEN_WEBHOOKS__NUM_REPLICAS": "2"}, set()),
    ({"GEN_MODELS__FLUX3-KLEIN__AUTOSCALING_CONFIG": '{"min_replicas": 0, "max_replicas": 1}'}, set()),
    ({"GEN_DISPATCHER__NUM_REPLICAS": "3"}, {"Dispatcher"}),
]


def test_only_changed_deployments_restart(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = versions(config)
    for changes, restarted in CHANGES:
        with monkeypatch.context() as changed:
            for name, value in changes.items():
                changed.setenv(name, value)
            after = versions(config)
        assert {name for name in before if before[name] != after[name]} == restarted, changes


def test_changed_secret_restarts_its_deployments(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = versions(config)
    monkeypatch.setenv("GEN_REDIS__URL", "rediss://:another@redis.example.com:6379/0")
    after = versions(config)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"Ingress", "Dispatcher", "WebhookSender"}


def test_changed_revision_restarts_everything(config: Path) -> None:
    before, after = versions(config), versions(config, revision="2")
    assert not [name for name in before if before[name] == after[name]]


def _iter_stored_bytes(deployment: serve.Deployment) -> Iterator[bytes]:
    replica = deployment._replica_config
    for part in (replica.serialized_deployment_def, replica.serialized_init_args, replica.serialized_init_kwargs):
        assert part
        yield part
    yield deployment._deployment_config.to_proto_bytes()
    yield repr((deployment.ray_actor_options, deployment.version)).encode()


class _Handle:
    """In place of a handle, which needs a cluster."""

    def __init__(self, deployment: serve.Deployment, application: str) -> None:
        self.names = (deployment.name, application)


def _handle(deployment: serve.Deployment, application: str) -> Any:
    return _Handle(deployment, application)
