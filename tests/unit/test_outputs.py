from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.jobs import change_job, make_job

from deployments.contract.job import GenerationJob
from deployments.contract.objects import ObjectStore
from deployments.contract.request import ImageFormat
from deployments.images import Pixels
from deployments.moderation.frames import decode_images
from deployments.outputs import Outputs, encode_image


def gradient(width: int = 50, height: int = 30) -> Pixels:
    """Returns an image whose red grows to the right and blue to the bottom."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = np.linspace(0, 255, width, dtype=np.uint8)
    pixels[..., 2] = np.linspace(0, 255, height, dtype=np.uint8)[:, None]
    return pixels


def job_for(output_format: ImageFormat) -> GenerationJob:
    return make_job(width=50, height=30, output_format=output_format, output_prefix="results/job/2")


@pytest.mark.parametrize(("output_format", "tolerance"), [("png", 0), ("jpeg", 40), ("webp", 40)])
def test_formats_keep_size_and_colours(output_format: ImageFormat, tolerance: int) -> None:
    pixels = gradient()
    data, content_type, extension = encode_image(pixels, output_format)
    with Image.open(io.BytesIO(data)) as image:
        assert image.format == output_format.upper()
        assert image.size == (50, 30)
        assert np.abs(np.asarray(image.convert("RGB")).astype(int) - pixels).max() <= tolerance
    assert content_type == f"image/{output_format}"
    assert extension == output_format


@pytest.mark.parametrize(("size", "small"), [((30, 600), (26, 512)), ((50, 30), (50, 30)), ((4000, 8), (512, 1))])
def test_thumbnail_is_stored_beside_the_image(size: tuple[int, int], small: tuple[int, int]) -> None:
    store = ObjectStore("memory:///")
    output = Outputs(store).store_image(job_for("png"), gradient(*size))
    assert (output.key, output.content_type) == ("results/job/2/image.png", "image/png")
    assert (output.width, output.height, output.size) == (*size, len(store.get_blocking(output.key)))
    assert output.proxy == output.thumbnail
    assert output.thumbnail == "results/job/2/thumbnail.jpeg"
    with Image.open(io.BytesIO(store.get_blocking(output.thumbnail))) as image:
        assert (image.format, image.size) == ("JPEG", small)
        left, right = (np.asarray(image)[0, column, 0] for column in (0, -1))
        assert left < 40
        assert right > 200


def test_thumbnail_of_a_transparent_image_is_transparent() -> None:
    store = ObjectStore("memory:///")
    pixels = np.dstack((gradient(1200, 600), np.zeros((600, 1200), np.uint8)))
    output = Outputs(store).store_image(job_for("png"), pixels)
    assert output.thumbnail == "results/job/2/thumbnail.png"
    with Image.open(io.BytesIO(store.get_blocking(output.thumbnail))) as image:
        assert (image.mode, image.size, image.getchannel("A").getextrema()) == ("RGBA", (512, 256), (0, 0))


def test_preview_is_numbered_by_its_step() -> None:
    store = ObjectStore("memory:///")
    preview = Outputs(store).store_preview(job_for("png"), gradient(), step=3)
    assert (preview.key, preview.step, preview.steps) == ("results/job/2/preview-3.jpeg", 3, 4)
    with Image.open(io.BytesIO(store.get_blocking(preview.key))) as image:
        assert image.format == "JPEG"


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return ObjectStore("memory:///" if request.param == "memory" else (tmp_path / "objects").as_uri())


@pytest.fixture
def video_file(tmp_path: Path) -> Path:
    file = tmp_path / "any name"
    file.write_bytes(bytes(range(256)) * 5000)
    return file


def test_video_is_stored_with_frames_and_draft(store: ObjectStore, video_file: Path) -> None:
    job = change_job(job_for("png"), output_format="mp4")
    output = Outputs(store).store_video(job, video_file, None, [gradient(512, 288)] * 3)
    assert output.key == "results/job/2/video.mp4"
    assert (output.width, output.height, output.content_type) == (50, 30, "video/mp4")
    assert output.draft is None
    assert output.thumbnail is not None
    with Image.open(io.BytesIO(store.get_blocking(output.thumbnail))) as image:
        assert image.size == (512, 288)
    assert store.get_blocking(output.key) == video_file.read_bytes()
    assert output.size == 256 * 5000
    assert output.proxy == "results/job/2/frames.tiff"
    frames = decode_images(store.get_blocking(output.proxy), output.proxy)
    assert [abs(frame.astype(int) - gradient(512, 288)).max() < 20 for frame in frames] == [True] * 3
    with pytest.raises(FileNotFoundError):
        store.get_blocking("results/job/2/draft.safetensors")
    draft = Outputs(store).store_video(job, video_file, b"latents", [gradient()]).draft
    assert draft == "results/job/2/draft.safetensors"
    assert store.get_blocking(draft) == b"latents"


def test_missing_file_makes_no_object(store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        store.put_file_blocking("a/b", tmp_path / "gone", "video/mp4")
    with pytest.raises(FileNotFoundError):
        store.get_blocking("a/b")
