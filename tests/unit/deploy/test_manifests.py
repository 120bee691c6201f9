"""The manifests are what Kubernetes and its operators take, and fit together."""

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
SCHEMAS = Path(__file__).with_name("schemas")


def schema(name: str) -> dict[str, Any]:
    return json.loads((SCHEMAS / name).read_text())


def problems(document: Document) -> list[str]:
    """What is wrong with it. Raises KeyError where no schema of its kind is here."""
    kubernetes = schema("kubernetes.json")
    registry = Registry().with_resource("kubernetes.json", Resource.from_contents(kubernetes))
    match document["apiVersion"]:
        case "ray.io/v1":
            validator = Draft7Validator(schema("kuberay.json"), registry=registry)
        case "monitoring.coreos.com/v1":
            validator = Draft7Validator(schema("servicemonitor.json"))
        case version:
            kind = kubernetes["kinds"][f"{version}/{document['kind']}"]
            whole = {"allOf": [{"$ref": f"kubernetes.json#/$defs/{kind}"}, {"required": ["metadata"]}]}
            validator = Draft7Validator(whole, registry=registry)
    return [
        f"{document['kind']}: {problem.json_path}: {problem.message}" for problem in validator.iter_errors(document)
    ]


def filter_kind(documents: list[Document], kind: str) -> list[Document]:
    return [each for each in documents if each["kind"] == kind]


def pods(documents: list[Document]) -> list[Document]:
    """Templates of pods."""
    (ray,) = filter_kind(documents, "RayService")
    cluster = ray["spec"]["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    kinds = ("Deployment", "StatefulSet", "Job")
    others = [each["spec"]["template"] for each in documents if each["kind"] in kinds]
    return [group["template"] for group in groups] + others


def test_all_documents_are_valid(manifests: list[Document]) -> None:
    assert [problem for document in manifests for problem in problems(document)] == []


def test_components_are_valid_and_those_that_no_overlay_has_can_be_added(repository: Path, tmp_path: Path) -> None:
    files = sorted((repository / KUBERNETES).rglob("*.yaml"))
    parts = [each for file in files for each in yaml.safe_load_all(file.read_text()) if each]
    complete = [each for each in parts if each.get("kind") not in (None, "Kustomization", "Component")]
    assert [problem for document in complete for problem in problems(document)] == []
    shutil.copytree(repository / KUBERNETES, tmp_path / "kubernetes")
    site = tmp_path / "kubernetes/overlays/gpu/kustomization.yaml"
    site.write_text(
        site.read_text().replace("  # - ../../components/object-store  # in", "  - ../../components/object-store  # in")
    )
    documents = render(site.parent)
    assert "object-store" in {each["metadata"]["name"] for each in filter_kind(documents, "StatefulSet")}
    assert [problem for document in documents for problem in problems(document)] == []


def test_kustomize_makes_the_same(repository: Path, overlay: str, manifests: list[Document]) -> None:
    """Names of config maps get a hash there, wherever they are named."""
    if not (kubectl := shutil.which("kubectl")):
        pytest.skip("no kubectl here")
    output = subprocess.run(
        [kubectl, "kustomize", repository / KUBERNETES / "overlays" / overlay],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    hashed = r"\b(gen-serve-(?:config|environment))-[a-z0-9]{10}\b"
    assert not re.search(r"\bgen-serve-(config|environment)(?!-[a-z0-9]{10}\b)", output)
    theirs = [each for each in yaml.safe_load_all(re.sub(hashed, r"\1", output)) if each]

    def place(document: Document) -> tuple[str, str]:
        return document["kind"], document["metadata"]["name"]

    assert sorted(theirs, key=place) == sorted(manifests, key=place)


def test_what_is_named_is_there(manifests: list[Document]) -> None:
    """Config maps and claims, and volumes where they are mounted. Secrets are made by hand."""
    there = {each["metadata"]["name"] for each in manifests}
    for pod in pods(manifests):
        spec = pod["spec"]
        volumes = {each["name"]: each for each in spec.get("volumes", [])}
        for volume in volumes.values():
            for kind, key in (("configMap", "name"), ("persistentVolumeClaim", "claimName")):
                assert kind not in volume or volume[kind][key] in there
        claimed = {"data"} if "clusterIP" not in spec else set()
        for container in spec["containers"]:
            assert {each["name"] for each in container.get("volumeMounts", [])} <= volumes.keys() | claimed
            for source in container.get("envFrom", []):
                assert "configMapRef" not in source or source["configMapRef"]["name"] in there
        assert spec.get("serviceAccountName", "default") in there | {"default"}


def test_no_pod_has_rights(manifests: list[Document]) -> None:
    contexts = [container["securityContext"] for container in containers(manifests)]
    (ray,) = filter_kind(manifests, "RayService")
    contexts.append(ray["spec"]["rayClusterConfig"]["autoscalerOptions"]["securityContext"])
    for context in contexts:
        assert context["runAsNonRoot"]
        assert not context["allowPrivilegeEscalation"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_probes_and_services_name_ports_that_are_there(manifests: list[Document]) -> None:
    for container in containers(manifests):
        names = {each["name"] for each in container["ports"]} if "ports" in container else set()
        for kind in ("readinessProbe", "livenessProbe"):
            for handler in ("httpGet", "tcpSocket"):
                port = container.get(kind, {}).get(handler, {}).get("port")
                assert port is None or port in names
    for service in filter_kind(manifests, "Service"):
        selected = [
            pod for pod in pods(manifests) if service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        ]
        assert selected, service["metadata"]["name"]
        ports = {each["name"] for pod in selected for c in pod["spec"]["containers"] for each in c["ports"]}
        assert {each["targetPort"] for each in service["spec"]["ports"]} <= ports


def test_every_pod_is_closed_and_policies_select_pods(manifests: list[Document]) -> None:
    """KubeRay adds the labels of ray.io."""
    policies = filter_kind(manifests, "NetworkPolicy")
    labels = [pod["metadata"]["labels"] for pod in pods(manifests)]
    assert all(each["app.kubernetes.io/part-of"] == "gen-serve" for each in labels)
    for policy in policies:
        selector = policy["spec"]["podSelector"]["matchLabels"].items()
        assert any(selector <= each.items() for each in labels), policy["metadata"]["name"]
    (budget,) = filter_kind(manifests, "PodDisruptionBudget")
    selector = {k: v for k, v in budget["spec"]["selector"]["matchLabels"].items() if not k.startswith("ray.io/")}
    assert any(selector.items() <= each.items() for each in labels)


def test_the_disruption_budget_holds_up_no_drain(manifests: list[Document]) -> None:
    """Of a RayCluster, Kubernetes knows no number of pods: a budget that needs it allows nothing."""
    (budget,) = filter_kind(manifests, "PodDisruptionBudget")
    group = budget["spec"]["selector"]["matchLabels"]["ray.io/group"]
    (ray_service,) = filter_kind(manifests, "RayService")
    workers = {each["groupName"]: each for each in ray_service["spec"]["rayClusterConfig"]["workerGroupSpecs"]}
    assert set(budget["spec"]) == {"minAvailable", "selector"}
    assert type(budget["spec"]["minAvailable"]) is int
    assert budget["spec"]["minAvailable"] < workers[group]["minReplicas"]


def test_the_store_forgets_nothing_and_knows_whom_it_answers(manifests: list[Document]) -> None:
    (valkey,) = (each for each in filter_kind(manifests, "StatefulSet") if each["metadata"]["name"] == "valkey")
    (command,) = valkey["spec"]["template"]["spec"]["containers"][0]["args"]
    for option in ("--appendonly yes", "--maxmemory-policy noeviction", "requirepass"):
        assert option in command


@pytest.fixture
def dockerfile(repository: Path) -> str:
    return (repository / "Dockerfile").read_text()


def stages(dockerfile: str) -> dict[str, str]:
    """What stands in each, by its name."""
    parts = re.split(r"^FROM \S+ AS (\S+)$", dockerfile, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_it_is_clean(repository: Path) -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if not hadolint:
        pytest.skip("no hadolint here")
    result = subprocess.run([hadolint, repository / "Dockerfile"], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "")


def test_the_base_has_a_whole_version(dockerfile: str) -> None:
    """A digest is the builder's to name."""
    bases = re.findall(r"^ARG \w+_IMAGE=(\S+)$", dockerfile, re.MULTILINE)
    assert bases
    assert [each for each in bases if not re.search(r":\d+\.\d+\.\d+-[a-z-]+$", each)] == []
    images = re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
    assert [each for each in images if not each.startswith("${") and each not in stages(dockerfile)] == []


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_it_runs_as_a_user_without_rights(dockerfile: str, target: str) -> None:
    users = re.findall(r"^USER (\S+)$", stages(dockerfile)[target], re.MULTILINE)
    assert users
    assert users[-1].split(":")[0].isdigit(), "Kubernetes can tell only of a number that it is not root"
    assert int(users[-1].split(":")[0]) > 0


def test_packages_come_by_hash(dockerfile: str) -> None:
    """But what was built here, and torch for CPUs."""
    installs = re.findall(r"pip install (.*?)(?=\s&&|\n(?! ))", dockerfile, re.DOTALL)
    others = [each for each in installs if "--require-hashes" not in each]
    assert len(installs) > len(others) > 0
    assert [each for each in others if "--no-index" not in each and "^torch==" not in each] == []
    assert all("--no-deps" in each for each in installs)


def test_what_is_copied_is_there_and_is_not_ignored(repository: Path, dockerfile: str) -> None:
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", dockerfile, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    assert [each for each in copied if not (repository / each).exists()] == []
    ignored = (repository / ".dockerignore").read_text().splitlines()
    exceptions = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert "*" in ignored
    assert {each for each in copied if not any(each == k or each.startswith(f"{k}/") for k in exceptions)} == set()


def test_the_compose_file_is_valid(repository: Path) -> None:
    schema = json.loads(Path(__file__).with_name("schemas").joinpath("compose.json").read_text())
    compose = yaml.safe_load((repository / "docker-compose.yaml").read_text())
    assert [problem.message for problem in Draft201909Validator(schema).iter_errors(compose)] == []
    for service in compose["services"].values():
        assert service["build"]["target"] in stages((repository / "Dockerfile").read_text())
