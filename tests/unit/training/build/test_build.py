from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from checkpoint_layout import files, layout, size
from support.bundle import copied

from deployments.checkpoints import load
from training.build.bundle import BUNDLE, CHECKPOINTS
from training.build.checkpoints import AUTOENCODERS, NAMES, build

TRAINED_LATER = [name for name in NAMES if name != "rewriter"]
PIPELINES = {
    "flux": "FluxPipeline",
    "kontext": "FluxKontextPipeline",
    "fill": "FluxFillPipeline",
    "canny": "FluxControlPipeline",
    "flux2klein": "Flux2KleinPipeline",
    "flux3": "Flux3DistilledModularPipeline",
    "ltx2": "LTX2ConditionPipeline",
}


def index(checkpoint: str) -> dict[str, object]:
    [file] = (CHECKPOINTS / checkpoint).glob("*model_index.json")
    return json.loads(file.read_text())


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bundle = tmp_path_factory.mktemp("rebuilt")
    for name in TRAINED_LATER:
        build(name, bundle)
    return bundle


def test_training_changes_nothing_but_the_numbers(rebuilt: Path) -> None:
    built = layout(rebuilt)
    stored = layout(BUNDLE)
    assert built.items() <= stored.items()
    assert {name.split("/")[1] for name in stored.keys() - built.keys()} == {"rewriter", "outlined.safetensors"}


def test_other_users_can_read_it(rebuilt: Path) -> None:
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in files(rebuilt).values())


def test_what_is_written_down_is_not_trained(rebuilt: Path) -> None:
    for component in ("vae", "audio_vae", "vocoder"):
        [stored] = (CHECKPOINTS / "ltx2" / component).glob("*.safetensors")
        assert stored.read_bytes() == (rebuilt / "checkpoints" / "ltx2" / component / stored.name).read_bytes()


@pytest.mark.parametrize("name", ["flux", "autoencoders"])
def test_building_repeats_itself_and_leaves_random_numbers_alone(rebuilt: Path, tmp_path: Path, name: str) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    folders = build(name, tmp_path)
    assert torch.equal(torch.rand(3), expected)
    for folder in folders:
        before = files(rebuilt / folder.relative_to(tmp_path))
        assert {name: file.read_bytes() for name, file in files(folder).items()} == {
            name: file.read_bytes() for name, file in before.items()
        }


@pytest.mark.parametrize("name", PIPELINES)
def test_each_is_small_enough_for_the_repository(name: str) -> None:
    assert size(CHECKPOINTS / name) < 7 * 2**20


@pytest.mark.parametrize("name", PIPELINES)
def test_the_index_names_the_pipeline_and_no_place_of_this_machine(name: str) -> None:
    entries = index(name)
    assert entries["_class_name"] == PIPELINES[name]
    assert "_name_or_path" not in entries
    configurations = [path.read_text() for name, path in files(CHECKPOINTS / name).items() if name.endswith(".json")]
    assert not any(str(BUNDLE.parent) in text for text in configurations)


def test_flux2_is_the_distilled_one() -> None:
    assert index("flux2klein")["is_distilled"] is True


def test_the_components_of_flux3_lie_beside_its_index() -> None:
    components = [entry[-1] for entry in index("flux3").values() if isinstance(entry, list)]
    assert len(components) == 4
    assert all(component["pretrained_model_name_or_path"] is None for component in components)


def test_every_autoencoder_is_stored_once() -> None:
    shared = {name: index(name).get("_shared") for name in PIPELINES}
    assert shared.pop("ltx2") is None
    assert shared == {
        name: {"vae": f"../../autoencoders/{'flux2' if name in ('flux2klein', 'flux3') else 'flux1'}"}
        for name in shared
    }
    assert [path.parent.name for path in CHECKPOINTS.glob("*/vae")] == ["ltx2"]
    assert sorted(path.name for path in (BUNDLE / "autoencoders").iterdir()) == sorted(AUTOENCODERS)


@pytest.mark.parametrize("name", ["kontext", "flux2klein"])
def test_a_copied_bundle_loads_from_any_place(tmp_path: Path, name: str) -> None:
    folder = copied(name, tmp_path / "elsewhere")
    assert load(str(folder), device="cpu", dtype="float32").family.transformer.dtype == torch.float32


def test_the_bundle_holds_nothing_but_weights() -> None:
    kinds = {path.suffix for path in BUNDLE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert kinds == {".json", ".jinja", ".safetensors"}
