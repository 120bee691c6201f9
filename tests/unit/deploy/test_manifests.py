"""The manifests and the Dockerfile are valid and fit together."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema.validators import Draft7Validator, Draft201909Validator
from referencing import Registry, Resource
from support.kustomize import Document, containers, render

KUBERNETES = Path("deploy/kubernetes")


def schema(name: str) -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("schemas").joinpath(name).read_text())


def problems(documents: list[Document]) -> list[str]:
    """Returns the faults of documents. Raises KeyError if a kind has no schema here."""
    kubernetes = schema("kubernetes.json")
    registry = Registry().with_resource("kubernetes.json", Resource.from_contents(kubernetes))
    found: list[str] = []
    for document in documents:
        match document["apiVersion"]:
            case "ray.io/v1":
                own = schema("kuberay.json")
            case "monitoring.coreos.com/v1":
                own = schema("servicemonitor.json")
            case version:
                kind = kubernetes["kinds"][f"{version}/{document['kind']}"]
                own = {"allOf": [{"$ref": f"kubernetes.json#/$defs/{kind}"}, {"required": ["metadata"]}]}
        validator = Draft7Validator(own, registry=registry)
        found += [f"{document['kind']}: {each.json_path}: {each.message}" for each in validator.iter_errors(document)]
    return found


def filter_kind(documents: list[Document], kind: str) -> list[Document]:
    return [each for each in documents if each["kind"] == kind]


@pytest.fixture(scope="session")
def pods(manifests: list[Document], ray_service: Document) -> list[Document]:
    """Returns the templates of all pods."""
    cluster = ray_service["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    others = [each["spec"] for each in manifests if each["kind"] in ("Deployment", "StatefulSet", "Job")]
    return [each["template"] for each in (*groups, *others)]


def test_all_documents_are_valid(manifests: list[Document]) -> None:
    assert problems(manifests) == []


def test_optional_components_are_valid(repository: Path, tmp_path: Path) -> None:
    files = sorted((repository / KUBERNETES).rglob("*.yaml"))
    parts = [each for file in files for each in yaml.safe_load_all(file.read_text()) if each]
    assert problems([each for each in parts if each.get("kind") not in (None, "Kustomization", "Component")]) == []
    shutil.copytree(repository / KUBERNETES, tmp_path / "kubernetes")
    site, component = tmp_path / "kubernetes/overlays/gpu/kustomization.yaml", "- ../../components/object-store  # in"
    site.write_text(site.read_text().replace(f"  # {component}", f"  {component}"))
    documents = render(site.parent)
    assert "object-store" in {each["metadata"]["name"] for each in filter_kind(documents, "StatefulSet")}
    assert problems(documents) == []


def test_kustomize_renders_the_same(repository: Path, overlay: str, manifests: list[Document]) -> None:
    """Kustomize adds a hash to the names of config maps."""
    if not (kubectl := shutil.which("kubectl")):
        pytest.skip("no kubectl here")
    command = [kubectl, "kustomize", repository / KUBERNETES / "overlays" / overlay]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert not re.search(r"\bgen-serve-(config|environment)(?!-[a-z0-9]{10}\b)", output)
    unhashed = re.sub(r"\b(gen-serve-(?:config|environment))-[a-z0-9]{10}\b", r"\1", output)
    theirs = [each for each in yaml.safe_load_all(unhashed) if each]
    assert by_name(theirs) == by_name(manifests)


def by_name(documents: list[Document]) -> list[Document]:
    return sorted(documents, key=lambda each: (each["kind"], each["metadata"]["name"]))


def test_named_volumes_and_config_maps_exist(manifests: list[Document], pods: list[Document]) -> None:
    names = {each["metadata"]["name"] for each in manifests}
    for pod in pods:
        spec = pod["spec"]
        volumes = {each["name"]: each for each in spec.get("volumes", [])}
        for volume in volumes.values():
            for kind, key in (("configMap", "name"), ("persistentVolumeClaim", "claimName")):
                assert kind not in volume or volume[kind][key] in names
        claimed = {"data"} if "clusterIP" not in spec else set()
        for container in spec["containers"]:
            assert {each["name"] for each in container.get("volumeMounts", [])} <= volumes.keys() | claimed
            for source in container.get("envFrom", []):
                assert "configMapRef" not in source or source["configMapRef"]["name"] in names
        assert spec.get("serviceAccountName", "default") in names | {"default"}


def test_no_pod_has_rights(manifests: list[Document], ray_service: Document) -> None:
    contexts = [container["securityContext"] for container in containers(manifests)]
    for context in (*contexts, ray_service["rayClusterConfig"]["autoscalerOptions"]["securityContext"]):
        assert context["runAsNonRoot"]
        assert not context["allowPrivilegeEscalation"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_probes_and_services_name_existing_ports(manifests: list[Document], pods: list[Document]) -> None:
    for container in containers(manifests):
        names = {each["name"] for each in container.get("ports", [])}
        for probe in ("readinessProbe", "livenessProbe"):
            for handler in ("httpGet", "tcpSocket"):
                port = container.get(probe, {}).get(handler, {}).get("port")
                assert port is None or port in names
    for service in filter_kind(manifests, "Service"):
        selector = service["spec"]["selector"].items()
        selected = [pod for pod in pods if selector <= pod["metadata"]["labels"].items()]
        assert selected, service["metadata"]["name"]
        ports = {each["name"] for pod in selected for c in pod["spec"]["containers"] for each in c["ports"]}
        assert {each["targetPort"] for each in service["spec"]["ports"]} <= ports


def test_every_pod_is_closed_and_policies_select_pods(manifests: list[Document], pods: list[Document]) -> None:
    labels = [pod["metadata"]["labels"] for pod in pods]
    assert all(each["app.kubernetes.io/part-of"] == "gen-serve" for each in labels)
    for policy in filter_kind(manifests, "NetworkPolicy"):
        selector = policy["spec"]["podSelector"]["matchLabels"].items()
        assert any(selector <= each.items() for each in labels), policy["metadata"]["name"]


def test_disruption_budget_permits_a_drain(
    manifests: list[Document], pods: list[Document], ray_service: Document
) -> None:
    """Kubernetes does not know the size of a RayCluster: a budget that needs it permits no drain."""
    (budget,) = filter_kind(manifests, "PodDisruptionBudget")
    labels = budget["spec"]["selector"]["matchLabels"]
    workers = {each["groupName"]: each for each in ray_service["rayClusterConfig"]["workerGroupSpecs"]}
    assert set(budget["spec"]) == {"minAvailable", "selector"}
    assert type(budget["spec"]["minAvailable"]) is int
    assert budget["spec"]["minAvailable"] < workers[labels["ray.io/group"]]["minReplicas"]
    own = {name: label for name, label in labels.items() if not name.startswith("ray.io/")}  # KubeRay adds the others
    assert any(own.items() <= pod["metadata"]["labels"].items() for pod in pods)


def test_valkey_keeps_its_data_and_needs_a_password(manifests: list[Document]) -> None:
    (valkey,) = (each for each in filter_kind(manifests, "StatefulSet") if each["metadata"]["name"] == "valkey")
    (command,) = valkey["spec"]["template"]["spec"]["containers"][0]["args"]
    for option in ("--appendonly yes", "--maxmemory-policy noeviction", "requirepass"):
        assert option in command


def stages(dockerfile: str) -> dict[str, str]:
    """Returns the text of each stage."""
    parts = re.split(r"^FROM \S+ AS (\S+)$", dockerfile, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_dockerfile_is_clean(repository: Path) -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if not hadolint:
        pytest.skip("no hadolint here")
    result = subprocess.run([hadolint, repository / "Dockerfile"], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "")


def test_base_images_have_whole_versions(dockerfile: str) -> None:
    bases = re.findall(r"^ARG \w+_IMAGE=(\S+)$", dockerfile, re.MULTILINE)
    assert bases
    assert [each for each in bases if not re.search(r":\d+\.\d+\.\d+-[a-z-]+$", each)] == []
    images = re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
    assert [each for each in images if not each.startswith("${") and each not in stages(dockerfile)] == []


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_image_runs_as_a_user_without_rights(dockerfile: str, target: str) -> None:
    user = re.findall(r"^USER (\S+)$", stages(dockerfile)[target], re.MULTILINE)[-1].split(":")[0]
    assert user.isdigit(), "Kubernetes recognizes root by its number"
    assert int(user) > 0


def test_packages_come_by_hash(dockerfile: str) -> None:
    """Exceptions are wheels that were built here, and torch for CPUs."""
    installs = re.findall(r"pip install (.*?)(?=\s&&|\n(?! ))", dockerfile, re.DOTALL)
    others = [each for each in installs if "--require-hashes" not in each]
    assert len(installs) > len(others) > 0
    assert [each for each in others if "--no-index" not in each and "^torch==" not in each] == []
    assert all("--no-deps" in each for each in installs)


def test_copied_files_exist_and_are_not_ignored(repository: Path, dockerfile: str) -> None:
    lines = re.findall(r"^COPY (?!--from)(.*)$", dockerfile, re.MULTILINE)
    copied = [source for line in lines for source in line.split()[:-1]]
    assert [each for each in copied if not (repository / each).exists()] == []
    ignored = (repository / ".dockerignore").read_text().splitlines()
    exceptions = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert "*" in ignored
    assert [each for each in copied if not any(f"{each}/".startswith(f"{name}/") for name in exceptions)] == []


def test_compose_file_is_valid(compose: Document, dockerfile: str) -> None:
    validator = Draft201909Validator(schema("compose.json"))
    assert [problem.message for problem in validator.iter_errors(compose)] == []
    assert {service["build"]["target"] for service in compose["services"].values()} <= stages(dockerfile).keys()
