"""The Dockerfile and the compose file by their rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from jsonschema.validators import Draft201909Validator


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
    ran = subprocess.run([hadolint, repository / "Dockerfile"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "")


def test_the_base_has_a_whole_version(dockerfile: str) -> None:
    """A digest is the builder's to name."""
    bases = re.findall(r"^ARG \w+_IMAGE=(\S+)$", dockerfile, re.MULTILINE)
    assert bases
    assert [each for each in bases if not re.search(r":\d+\.\d+\.\d+-[a-z-]+$", each)] == []
    named = re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
    assert [each for each in named if not each.startswith("${") and each not in stages(dockerfile)] == []


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
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert "*" in ignored
    assert {each for each in copied if not any(each == k or each.startswith(f"{k}/") for k in kept)} == set()


def test_the_compose_file_is_valid(repository: Path) -> None:
    schema = json.loads(Path(__file__).with_name("schemas").joinpath("compose.json").read_text())
    said = yaml.safe_load((repository / "docker-compose.yaml").read_text())
    assert [problem.message for problem in Draft201909Validator(schema).iter_errors(said)] == []
    for service in said["services"].values():
        assert service["build"]["target"] in stages((repository / "Dockerfile").read_text())
