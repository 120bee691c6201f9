"""A profile whose checkpoints are on a hub of this machine, and the machine that serves it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from deployments.contract.model import BUNDLED
from support.model_hub import Repository

PIPELINE = "owner/pipeline"
REWRITER = "owner/rewriter"
NETWORK = "owner/network/onnx/model.onnx"


def pipeline() -> dict[str, bytes]:
    """A bundled checkpoint as it would be on the hub: its autoencoder beside the other components, and files that no
    replica reads."""
    autoencoder = Repository.of(BUNDLED.parent / "autoencoders" / "flux1")
    index = json.loads((BUNDLED / "flux" / "model_index.json").read_bytes())
    del index["_shared"]
    others = {"README.md": b"about it", "all-in-one.safetensors": b"the same once more", "index": b""}
    parts = {f"vae/{name}": content for name, content in autoencoder.items()}
    return Repository.of(BUNDLED / "flux") | parts | others | {"model_index.json": json.dumps(index).encode()}


@dataclass(frozen=True)
class Profile:
    """A profile, the cache of a machine, and the machine's environment."""

    folder: Path
    environment: dict[str, str]
    settings: dict[str, Any]

    def written(self) -> Path:
        """Its settings file."""
        config = self.folder / "config.yaml"
        config.write_text(json.dumps(self.settings))
        return config

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), env=self.environment | environment, capture_output=True, text=True, timeout=300
        )

    def command(self, *words: str) -> list[str]:
        """`gen-serve weights` with these words."""
        start = [sys.executable, "-c", "from serve_app.cli import main; main()", "weights"]
        return [*start, *words, "--config", str(self.written())]

    def fetch(self, **environment: str) -> tuple[int, dict[str, str], str]:
        """The exit code, by checkpoint what came of it, and stderr."""
        ran = self.run("fetch", "--json", **environment)
        return ran.returncode, {each["checkpoint"]: each["state"] for each in json.loads(ran.stdout)}, ran.stderr

    def offline(self, script: str) -> str:
        """What a script prints that runs where replicas do, which may not ask the hub."""
        ran = subprocess.run(
            [sys.executable, "-c", script],
            env=self.environment | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    @property
    def files(self) -> set[str]:
        """That are in the cache, by their names in their repositories."""
        folders = (self.folder / "hub").glob("hub/models--*/snapshots/*")
        return {file.relative_to(each).as_posix() for each in folders for file in each.rglob("*") if file.is_file()}


Profiles: TypeAlias = Callable[..., Profile]
"""Makes one with these models in its catalog."""
