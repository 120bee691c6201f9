"""`gen-serve bench` and the conformance kit on a whole service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from gen_serve_bench.workload import read_trace, write_trace
from support.local_service import LocalService

pytestmark = pytest.mark.slow

MIX = """
endpoints:
  - endpoint: gen-3-image-klein
    sizes: [64x64, 128x64]
    steps: [2]
    weight: 3
  - endpoint: gen-3-image-klein
    sizes: [64x64]
    steps: [2]
    references: 1
    reference_size: 64x64
tenants:
  - {name: first, traffic: 2, key_env: FIRST_KEY}
  - {name: second, key_file: second.key}
"""


@pytest.fixture
def folder(service: LocalService, tmp_path: Path) -> Path:
    """A folder with the mix and the key of a second project."""
    (tmp_path / "mix.yaml").write_text(MIX)
    project = f"bench-{uuid.uuid4().hex}"
    operator = ("--key", service.operator_key)
    run_gen_serve(service, tmp_path, "projects", "create", project, *operator)
    output = run_gen_serve(service, tmp_path, "keys", "create", "bench", "--project", project, *operator)
    (tmp_path / "second.key").write_text(next(word for word in output.split() if word.startswith("gen_")))
    return tmp_path


def run_gen_serve(service: LocalService, folder: Path, *words: str) -> str:
    environment = {"GEN_CONFIG": str(service.config), "GEN_BASE_URL": service.base_url, "FIRST_KEY": service.key}
    environment["XDG_STATE_HOME"] = str(folder / "state")
    result = subprocess.run(
        [str(Path(sys.executable).with_name("gen-serve")), *words],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def run_json(service: LocalService, folder: Path, *words: str) -> Any:
    return json.loads(run_gen_serve(service, folder, "bench", *words, "--json"))


def test_load_is_run_recorded_and_replayed(service: LocalService, folder: Path) -> None:
    arrivals = ("--arrivals", "constant", "--rate", "3", "--duration", "6", "--seed", "5")
    run = run_json(
        service, folder, "run", "--mix", "mix.yaml", *arrivals, "--slo", "200", "--processes", "2", "-o", "one"
    )
    summary = run["figures"]
    assert (summary["requests"], summary["ends"], summary["lost"]) == (18, {"served": 18}, 0)
    assert summary["attainment"] == 1
    assert summary["service_time"]["n"] == summary["queue_wait"]["n"] == 18
    assert summary["fairness"]["counted_in"] == "megapixel-steps"

    since = f"{datetime.fromtimestamp(int(run['started'])):%Y-%m-%dT%H:%M:%S}"
    run_gen_serve(service, folder, "bench", "record", "--since", since, "-o", "trace.jsonl")
    recorded = read_trace(folder / "trace.jsonl")[-18:]
    assert Counter(each.references for each in recorded)[1] > 0
    assert {(each.width, each.height, each.steps) for each in recorded} == {(64, 64, 2), (128, 64, 2)}
    counts = sorted(each["asked"] for each in summary["fairness"]["tenants"].values())
    assert sorted(Counter(each.tenant for each in recorded).values()) == counts
    write_trace(folder / "trace.jsonl", recorded)

    words = ("replay", "trace.jsonl", "--mix", "mix.yaml", "--speed", "2", "--slo", "200", "--wait", "5", "-o", "two")
    again = run_json(service, folder, *words)["figures"]
    assert again["ends"] == {"served": 18}
    first, second = ({kind: each["requests"] for kind, each in part["kinds"].items()} for part in (summary, again))
    assert first == second


def test_bench_sends_openai_requests(service: LocalService, tmp_path: Path) -> None:
    words = ("--endpoint", "gen-3-image-klein", "--size", "64x64", "--steps", "2", "--adapter", "openai")
    run = run_json(
        service, tmp_path, "run", *words, "--key", service.key, "--rate", "2", "--duration", "3", "-o", "openai"
    )
    assert set(run["figures"]["ends"]) == {"served"}


def test_sentences_about_results_hold(service: LocalService, repository: Path) -> None:
    where = ["--server", service.base_url, "--server-key", service.key, "-p", "no:cacheprovider", "-q"]
    command = [sys.executable, "-m", "pytest", *where, "-k", "not fields and not values", "tests/conformance"]
    result = subprocess.run(command, check=False, cwd=repository, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-5000:]
