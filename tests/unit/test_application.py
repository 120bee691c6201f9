"""The Ray Serve application: arguments, secrets, and which changes restart which deployments."""

from __future__ import annotations

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

# Ray wants the interval of its reports in the environment, where it is one for all.
pytestmark = pytest.mark.filterwarnings("ignore:The `metrics_interval_s` field:DeprecationWarning")

SECRETS = {
    "GEN_REDIS__URL": "rediss://:redis-password@redis.example.com:6379/0",
    "GEN_SEALING__KEYS": f'["{new_key()}"]',
    "GEN_METRICS__TOKEN": "metrics-token",
    "GEN_OBJECTS__URL": "s3://bucket/gen",
    "GEN_OBJECTS__OPTIONS": '{"region": "eu-central-1", "secret_access_key": "object-secret"}',
    "GEN_ACCOUNTS__OPENID": '{"issuer": "https://id.example", "client_id": "gen", "client_secret": "openid-secret"}',
}
HIDDEN = ("redis-password", SECRETS["GEN_SEALING__KEYS"][2:-2], "metrics-token", "object-secret", "openid-secret")
MODELS = ("flux3-klein", "eraser")


@pytest.fixture(scope="module", autouse=True)
def secrets() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """Settings of two models and a classifier with weights, without secrets."""
    folder = tmp_path_factory.mktemp("application")
    catalog = yaml.safe_load((repository / "configs/catalog.yaml").read_text())
    catalog["models"] = {name: catalog["models"][name] for name in MODELS}
    catalog |= {"endpoints": {"gen-3-image-klein": catalog["endpoints"]["gen-3-image-klein"]}, "withdrawn": {}}
    (folder / "catalog.yaml").write_text(yaml.safe_dump(catalog))
    values = yaml.safe_load((repository / "configs/local.yaml").read_text())
    values |= {"data_dir": str(folder / "data"), "catalog": str(folder / "catalog.yaml")}
    values["models"] = {name: values["models"][name] for name in MODELS}
    values["moderation"]["text"].append({"backend": "guard", "checkpoint": "any"})
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    return folder / "config.yaml"


def build_deployments(config: Path, **args: str) -> dict[str, serve.Deployment]:
    """Builds the application as Ray's own commands do. Returns its deployments by name."""
    bound = call_user_app_builder_with_args_if_necessary(application.app, {"config": str(config), **args})
    return {each.name: each for each in build_app(bound, name="any", make_deployment_handle=_handle).deployments}


def _handle(deployment: serve.Deployment, application: str) -> Any:
    """Stands for a handle, which needs a cluster."""
    return deployment.name, application


def versions(config: Path, **args: str) -> dict[str, str]:
    return {name: str(deployment.version) for name, deployment in build_deployments(config, **args).items()}


@pytest.fixture(scope="module")
def before(config: Path) -> dict[str, str]:
    """Returns the versions of deployments before a change."""
    return versions(config)


@pytest.mark.parametrize(("least", "most", "decided"), [(1, 1, False), (3, 3, False), (0, 1, True), (1, 2, True)])
def test_only_autoscaled_deployments_report_load(least: int, most: int, decided: bool) -> None:
    options = application._replicas(AutoscalingConfig(min_replicas=least, max_replicas=most))
    assert ("autoscaling_config" in options) is decided
    assert options.get("num_replicas") == (None if decided else most)


def test_serve_stores_no_secret_and_replicas_find_them(config: Path) -> None:
    deployments = build_deployments(config)
    assert set(deployments) == {"Ingress", "Dispatcher", "WebhookSender", "PromptRewriter", "Moderator", *MODELS}
    for name, deployment in deployments.items():
        parts = list(_iter_stored_bytes(deployment))
        assert not [secret for secret in HIDDEN for part in parts if secret.encode() in part], name
    assert any(b"eu-central-1" in part for part in _iter_stored_bytes(deployments["flux3-klein"]))
    [bound] = deployments["WebhookSender"].init_args
    assert bound.settings().redis_url == SECRETS["GEN_REDIS__URL"]
    spec = deployments["flux3-klein"].init_args[0]
    assert spec.objects_secrets() == {"secret_access_key": "object-secret"}


def _iter_stored_bytes(deployment: serve.Deployment) -> Iterator[bytes]:
    replica = deployment._replica_config
    for part in (replica.serialized_deployment_def, replica.serialized_init_args, replica.serialized_init_kwargs):
        assert part
        yield part
    yield deployment._deployment_config.to_proto_bytes()
    yield repr((deployment.ray_actor_options, deployment.version)).encode()


def test_classifiers_without_weights_need_no_deployment(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEN_MODERATION__TEXT", '[{"backend": "lexicon"}]')
    deployments = build_deployments(config)
    assert "Moderator" not in deployments
    assert [each.backend for each in cast(Any, deployments["Dispatcher"].init_args)[4].text] == ["lexicon"]


def test_max_replicas_per_node_reaches_serve_without_a_restart(
    config: Path, before: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"SERVICE": "Ingress", "DISPATCHER": "Dispatcher", "WEBHOOKS": "WebhookSender", "MODERATION": "Moderator"}
    for limit, section in enumerate(names, start=1):
        monkeypatch.setenv(f"GEN_{section}__MAX_REPLICAS_PER_NODE", str(limit))
    deployments = build_deployments(config)
    assert [deployments[name]._replica_config.max_replicas_per_node for name in names.values()] == [1, 2, 3, 4]
    assert {name: str(each.version) for name, each in deployments.items()} == before, "Ray itself sees that it changed"


def test_invalid_arguments_are_refused(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError, match="cofnig"):
        call_user_app_builder_with_args_if_necessary(application.app, {"cofnig": str(config)})
    with pytest.raises(FileNotFoundError, match=r"nowhere\.yaml"):
        build_deployments(Path("nowhere.yaml"))
    monkeypatch.delenv("GEN_REDIS__URL")
    with pytest.raises(ValueError, match="GEN_REDIS__URL"):
        build_deployments(config)


def test_serve_build_writes_a_file_that_serve_deploy_takes(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "serve.yaml"
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


SCALING = {
    "GEN_METRICS__PORT": "9999",
    "GEN_RAY__ADDRESS": "auto",
    "GEN_SERVICE__NUM_REPLICAS": "3",
    "GEN_WEBHOOKS__NUM_REPLICAS": "2",
    "GEN_MODELS__FLUX3-KLEIN__AUTOSCALING_CONFIG": '{"min_replicas": 0, "max_replicas": 1}',
}


@pytest.mark.parametrize(
    ("variables", "restarted"),
    [
        ({"GEN_MODELS__FLUX3-KLEIN__STEP_LIMIT_S": "99"}, {"flux3-klein", "Dispatcher", "Ingress"}),
        ({"GEN_WEBHOOKS__TIMEOUT_S": "7"}, {"WebhookSender", "Dispatcher", "Ingress"}),
        ({"GEN_SERVICE__MAX_BODY_MB": "3"}, {"Ingress"}),
        ({"GEN_MODERATION__MAX_BATCH": "3"}, {"Moderator", "Dispatcher"}),
        ({"GEN_METRICS__GRAFANA_URL": "https://grafana.test/"}, {"Ingress"}),
        ({"GEN_DISPATCHER__NUM_REPLICAS": "3"}, {"Dispatcher"}),
        ({"GEN_REDIS__URL": "rediss://:other@redis.example.com:6379/0"}, {"Ingress", "Dispatcher", "WebhookSender"}),
        (SCALING, set()),
    ],
    ids=["model", "webhooks", "service", "moderation", "metrics", "dispatcher", "secret", "scaling"],
)
def test_changed_setting_restarts_only_the_deployments_that_read_it(
    variables: dict[str, str],
    restarted: set[str],
    config: Path,
    before: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    after = versions(config)
    assert {name for name in before if before[name] != after[name]} == restarted


def test_changed_revision_restarts_everything(config: Path, before: dict[str, str]) -> None:
    after = versions(config, revision="2")
    assert not [name for name in before if before[name] == after[name]]
