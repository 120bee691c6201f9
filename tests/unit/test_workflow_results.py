"""Files of workflows as results: stored as they are, without their metadata."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from deployments.contract.job import GenerationJob, Output
from deployments.contract.objects import ObjectStore
from deployments.contract.request import OutputFormat, ResolvedRequest
from deployments.outputs import Outputs
from deployments.remote_engine.workflow_results import store_workflow_results
from deployments.video.writer import command

SECRET = "the whole workflow"


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(f"file://{tmp_path}/objects")


def store_files(store: ObjectStore, *files: Path, output_format: OutputFormat = "original") -> Output:
    request = ResolvedRequest(prompt="", width=0, height=0, steps=1, seed=1, output_format=output_format)
    return store_workflow_results(Outputs(store), GenerationJob("task", 1, request, "results/task/1"), files)


def picture(mode: str = "RGB", size: tuple[int, int] = (48, 32)) -> Image.Image:
    shape = (size[1], size[0], len(mode))
    return Image.fromarray(np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8), mode)


def write_image(file: Path, image: Image.Image, **options: Any) -> Path:
    exif, text = Image.Exif(), PngInfo()
    exif[0x010E] = SECRET
    text.add_text("prompt", SECRET)
    text.add_itxt("workflow", SECRET)
    image.save(file, exif=exif, **({"pnginfo": text} if file.suffix == ".png" else {"comment": SECRET}), **options)
    assert SECRET.encode() in file.read_bytes()
    return file


def write_media(file: Path, *source: str) -> Path:
    arguments = ("-f", "lavfi", "-i", *source, "-metadata", f"comment={SECRET}", str(file))
    subprocess.run(command(*arguments), check=True, capture_output=True)
    assert SECRET.encode() in file.read_bytes()
    return file


def hash_streams(file: Path) -> bytes:
    arguments = ("-i", str(file), "-map", "0", "-c", "copy", "-f", "streamhash", "-")
    return subprocess.run(command(*arguments), check=True, capture_output=True).stdout


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp"])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_image_loses_its_metadata_alone(store: ObjectStore, tmp_path: Path, suffix: str, mode: str) -> None:
    image = picture("RGB" if suffix == ".jpg" else mode)
    file = write_image(tmp_path / f"0{suffix}", image)
    pixels = Image.open(file).tobytes()
    output = store_files(store, file)
    data = store.get_blocking(output.key)
    assert SECRET.encode() not in data
    with Image.open(io.BytesIO(data)) as stored:
        assert (stored.tobytes(), stored.mode, stored.size) == (pixels, image.mode, (output.width, output.height))


def test_colour_profile_of_a_picture_stays(store: ObjectStore, tmp_path: Path) -> None:
    for suffix in (".png", ".jpg", ".webp"):
        file = write_image(tmp_path / f"0{suffix}", picture(), icc_profile=b"profile" * 9)
        with Image.open(io.BytesIO(store.get_blocking(store_files(store, file).key))) as stored:
            assert stored.info["icc_profile"] == b"profile" * 9


@pytest.mark.parametrize("suffix", [".webp", ".png", ".gif"])
def test_animation_keeps_its_frames(store: ObjectStore, tmp_path: Path, suffix: str) -> None:
    frames = [Image.new("RGB", (32, 32), colour) for colour in ("red", "green", "blue")]
    file = tmp_path / f"0{suffix}"
    text = PngInfo()
    text.add_text("prompt", SECRET)
    options: dict[str, Any] = {".png": {"pnginfo": text}, ".gif": {"comment": SECRET}}.get(suffix, {})
    frames[0].save(file, save_all=True, append_images=frames[1:], duration=100, **options)
    output = store_files(store, file)
    data = store.get_blocking(output.key)
    assert SECRET.encode() not in data
    with Image.open(io.BytesIO(data)) as stored:
        assert stored.n_frames == 3  # type: ignore[attr-defined]
    assert output.proxy is not None
    with Image.open(io.BytesIO(store.get_blocking(output.proxy))) as proxy:
        assert proxy.n_frames == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("suffix", [".mp4", ".webm"])
def test_video_loses_its_metadata_alone(store: ObjectStore, tmp_path: Path, suffix: str) -> None:
    file = write_media(tmp_path / f"0{suffix}", "testsrc=duration=1:size=64x48:rate=8")
    output = store_files(store, file)
    data = store.get_blocking(output.key)
    assert SECRET.encode() not in data
    copy = tmp_path / f"copy{suffix}"
    copy.write_bytes(data)
    assert (output.content_type, output.width, output.height) == (f"video/{suffix[1:]}", 64, 48)
    assert hash_streams(copy) == hash_streams(file)
    assert output.thumbnail is not None
    assert output.proxy is not None


def test_sound_is_stored_and_not_moderated(store: ObjectStore, tmp_path: Path) -> None:
    output = store_files(store, write_media(tmp_path / "0.flac", "sine=duration=1"))
    assert SECRET.encode() not in store.get_blocking(output.key)
    assert (output.content_type, output.moderated, output.thumbnail) == ("audio/flac", None, None)


def test_results_keep_their_order_and_names(store: ObjectStore, tmp_path: Path) -> None:
    files = [write_image(tmp_path / f"{side}.png", picture(size=(side, 16))) for side in (16, 24)]
    files.append(write_media(tmp_path / "v.mp4", "testsrc=duration=1:size=64x48:rate=8"))
    output = store_files(store, *files)
    assert [each.key.rpartition("/")[2] for each in (output, *output.more)] == [
        "image.png",
        "image-2.png",
        "video-3.mp4",
    ]
    assert [each.width for each in (output, *output.more)] == [16, 24, 64]


@pytest.mark.parametrize(
    ("mode", "asked", "given"), [("RGBA", "jpeg", "PNG"), ("RGB", "jpeg", "JPEG"), ("RGBA", "webp", "WEBP")]
)
def test_transparency_survives_the_format(
    store: ObjectStore, tmp_path: Path, mode: str, asked: OutputFormat, given: str
) -> None:
    output = store_files(store, write_image(tmp_path / "0.png", picture(mode)), output_format=asked)
    with Image.open(io.BytesIO(store.get_blocking(output.key))) as stored:
        assert (stored.format, stored.mode) == (given, mode)


@pytest.mark.parametrize("name", ["0.png", "0.mp4", "0.wav", "0.glb"])
def test_unreadable_result_is_the_models_fault(store: ObjectStore, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(b"nothing")
    with pytest.raises(RuntimeError, match="workflow"):
        store_files(store, file)
