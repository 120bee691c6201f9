"""Required checkpoints are those of the replicas' arguments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray import serve
from ray.serve._private.build_app import build_app

from deployments.contract.checkpoint_layout import TEXT_ENCODERS
from deployments.contract.hub_files import CONFIGURATION_FILES, CheckpointKind
from deployments.contract.model import (
    DIFFUSION,
    NETWORKS,
    FusedAdapter,
    ModelSpec,
    Quantization,
    RewriterSpec,
    TextEncoderSpec,
)
from deployments.contract.moderation import ModeratorSpec
from serve_app.application import build
from serve_app.cluster.checkpoints import RequiredCheckpoint, required_checkpoints
from serve_app.cluster.weights import hub_files
from serve_app.config import catalog as catalogs
from serve_app.config import settings as all_settings
from serve_app.config.model_settings import TextEncoderSettings
from serve_app.config.settings import Settings

# Ray wants the interval of its reports in the environment, where it is one for all.
pytestmark = pytest.mark.filterwarnings("ignore:The `metrics_interval_s` field:DeprecationWarning")


@pytest.fixture
def load_settings(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(repository)
    return lambda name, **changes: all_settings.load(Path(f"configs/{name}.yaml")).model_copy(update=changes)


def list_checkpoints(settings: Settings) -> tuple[RequiredCheckpoint, ...]:
    return required_checkpoints(settings, catalogs.load(settings))


def checkpoints(application: serve.Application) -> Iterator[tuple[str, str | None, CheckpointKind]]:
    """Yields the checkpoints in the arguments of all deployments."""
    for spec in (spec for each in build_app(application, name="gen").deployments for spec in each.init_args):
        match spec:
            case ModelSpec(backend=backend):
                if backend == DIFFUSION:
                    yield spec.checkpoint, spec.revision, CheckpointKind.PIPELINE
                    if spec.matting.backend in NETWORKS:
                        yield spec.matting.checkpoint or "", spec.matting.revision, CheckpointKind.NETWORK
                elif backend in NETWORKS:
                    yield spec.checkpoint, spec.revision, CheckpointKind.NETWORK
                if spec.redux:
                    yield spec.redux, None, CheckpointKind.PIPELINE
            case TextEncoderSpec():
                yield spec.checkpoint, spec.revision, CheckpointKind.PIPELINE
            case RewriterSpec():
                yield spec.checkpoint, spec.revision, CheckpointKind.PRETRAINED
            case ModeratorSpec():
                for classifier in (*spec.text, *spec.images):
                    if classifier.checkpoint:
                        yield classifier.checkpoint, classifier.revision, CheckpointKind.PRETRAINED


@pytest.mark.parametrize("name", ["local", "single-gpu", "cluster"])
def test_checkpoints_of_all_replicas_are_required(load_settings: Any, name: str) -> None:
    settings = load_settings(name)
    hub_files = set(checkpoints(build(settings)))
    replica_checkpoints = [each for each in list_checkpoints(settings) if each.kind is not CheckpointKind.CONFIGURATION]
    assert {(each.checkpoint, each.revision, each.kind) for each in replica_checkpoints} == hub_files


def test_checkpoints_of_text_encoders_and_upload_checks_are_required(load_settings: Any) -> None:
    shared = load_settings(
        "cluster", text_encoders={"flux1": TextEncoderSettings(checkpoint="owner/name", revision="v1")}
    )
    encoder = RequiredCheckpoint("text encoder flux1", "owner/name", "v1", actor={"num_cpus": 0}, weights=TEXT_ENCODERS)
    assert encoder in list_checkpoints(shared)
    assert "uploads for flux3-klein" in {each.loaded_by for each in list_checkpoints(shared)}


def test_single_file_is_required_with_its_configuration(load_settings: Any) -> None:
    settings = load_settings("local")
    model = settings.models["flux1-dev"].model_copy(
        update={
            "checkpoint": "owner/name/mine.safetensors",
            "config_from": "owner/base",
            "quantization": Quantization(method="gguf", files={"transformer": "owner/gguf/q4.gguf"}),
        }
    )
    own = settings.model_copy(update={"models": settings.models | {"flux1-dev": model}})
    fetched = {each.repository: each.patterns for each in hub_files(list_checkpoints(own))}
    assert fetched["owner/name"][0] == "mine.safetensors"
    assert fetched["owner/gguf"][0] == "q4.gguf"
    assert all(not each.endswith((".safetensors", "/*")) for each in fetched["owner/base"])


def test_adapters_and_components_are_required(load_settings: Any) -> None:
    settings = load_settings("local")
    parts = {"loras": (FusedAdapter(file="owner/few/steps.safetensors"),), "components": {"vae": "owner/vae"}}
    model = settings.models["flux1-dev"].model_copy(update=parts)
    own = settings.model_copy(update={"models": settings.models | {"flux1-dev": model}})
    fetched = {each.repository: each.patterns for each in hub_files(list_checkpoints(own))}
    assert fetched["owner/few"][0] == "steps.safetensors"
    assert "*.safetensors" in fetched["owner/vae"]


def test_disabled_parts_require_no_checkpoint(load_settings: Any) -> None:
    usual = load_settings("cluster")
    off = load_settings(
        "cluster",
        rewriter=usual.rewriter.model_copy(update={"enabled": False}),
        moderation=usual.moderation.model_copy(update={"enabled": False}),
    )
    removed = {each.loaded_by for each in list_checkpoints(usual)} - {each.loaded_by for each in list_checkpoints(off)}
    assert removed == {"rewriter", "classifier guard", "classifier image-classifier"}


@pytest.mark.parametrize(
    ("actor", "fits"),
    [
        ({}, True),
        ({"num_cpus": 4, "num_gpus": 1, "resources": {"image": 1}}, True),
        ({"num_gpus": 2}, False),
        ({"resources": {"large": 0.1}}, False),
        ({"accelerator_type": "H100"}, True),
        ({"accelerator_type": "A100"}, False),
        ({"memory": 10}, False),
    ],
)
def test_checkpoint_is_required_on_nodes_that_fit_the_replica(actor: dict[str, Any], fits: bool) -> None:
    node = {"CPU": 4.0, "GPU": 1.0, "image": 1.0, "accelerator_type:H100": 1.0, "memory": 9.0}
    assert RequiredCheckpoint("model", "owner/name", actor=actor).fits(node) is fits


def test_each_revision_is_fetched_once_and_uploads_need_configurations() -> None:
    pipeline, same = (RequiredCheckpoint(name, "owner/name", "v1") for name in ("model", "same"))
    uploads = RequiredCheckpoint("uploads for queue", "owner/name", "v1", CheckpointKind.CONFIGURATION)
    assert hub_files([pipeline, uploads, same, RequiredCheckpoint("small", "bundled/flux3")]) == [pipeline.files()]
    whole, part = hub_files([pipeline, replace(uploads, revision="v2")])
    assert (whole.revision, part.revision, part.patterns) == ("v1", "v2", CONFIGURATION_FILES)
    assert [each.patterns for each in hub_files([uploads])] == [CONFIGURATION_FILES]
