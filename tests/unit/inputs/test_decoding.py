from __future__ import annotations

import base64
import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageCms
from support.hostile_images import png_chunk, png_with, repeated_scan, webp_with
from support.images import encode_image, to_base64
from support.input_images import as_input, input_image, pixels

from serve_app.inputs.geometry import MEGAPIXEL
from serve_app.inputs.images import (
    MAX_FRAMES,
    MAX_PARTS,
    MAX_SCANS,
    InputImage,
    InvalidFile,
    convert_to_srgb,
    count_scans,
    decode_image,
    read_image,
)
from serve_app.inputs.masks import scale
from serve_app.inputs.settings import ImageLimits

NOISE = Image.effect_noise((60, 40), 80)
IMAGE = Image.merge("RGB", (NOISE, NOISE.rotate(180), NOISE))


def _mode(image: InputImage) -> str:
    with Image.open(io.BytesIO(image.data)) as pil_image:
        return pil_image.mode


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_files_are_written_anew_and_keep_their_pixels(kind: str, mode: str) -> None:
    source = IMAGE.convert(mode)
    if mode == "RGBA":
        kind = "PNG" if kind == "JPEG" else kind
        source.putalpha(NOISE)
    data = encode_image(source, kind)
    image = decode_image(to_base64(data).encode())
    assert (image.width, image.height, image.has_alpha) == (60, 40, mode == "RGBA")
    with Image.open(io.BytesIO(data)) as original, Image.open(io.BytesIO(image.data)) as stored:
        assert stored.mode == original.mode
        assert stored.tobytes() == original.tobytes()
    assert read_image(image.data) == image
    assert "data" not in repr(image)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_nothing_of_a_file_but_its_pixels_is_kept(kind: str) -> None:
    exif = Image.Exif()
    exif[0x010E] = "a garden"
    assert b"garden" not in read_image(encode_image(IMAGE, kind, exif=exif, comment=b"a garden") + b"garden").data


def test_every_way_to_write_base64() -> None:
    data = encode_image(IMAGE, "PNG")
    text = to_base64(data)
    lines = "\r\n".join(text[start : start + 76] for start in range(0, len(text), 76))
    urlsafe = base64.urlsafe_b64encode(data).decode()
    for value in (
        text,
        lines,
        urlsafe,
        text.rstrip("="),
        f"data:image/png;base64,{text}",
        f"DATA:image/png;charset=x;BASE64,{text}",
        f"data:;base64,{lines}\n",
    ):
        assert decode_image(value.encode()) == read_image(data)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "not an image"),
        ("***", "base64"),
        ("data:image/png,abc", "data: URI"),
        ("data:image/png;base64", "data: URI"),
        ("caf\u00e9", "base64"),
    ],
)
def test_values_that_are_no_image(value: str, problem: str) -> None:
    with pytest.raises(InvalidFile, match=problem):
        decode_image(value.encode())


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_truncated_files(kind: str) -> None:
    data = encode_image(IMAGE.resize((600, 400)), kind)
    for part in (len(data) // 4, len(data) // 2, len(data) * 9 // 10):
        with pytest.raises(InvalidFile, match=r"ends early|damaged"):
            read_image(data[:part])


@given(st.binary(max_size=300), st.integers(0, 400))
def test_spoilt_bytes_never_raise_anything_else(junk: bytes, start: int) -> None:
    data = encode_image(IMAGE, "PNG")
    spoilt = data[:start] + junk + data[start + len(junk) :]
    try:
        image = read_image(spoilt)
    except InvalidFile:
        return
    assert (image.width, image.height) != (0, 0)


def _header_only_png(width: int, height: int) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", head)
        + png_chunk(b"IDAT", zlib.compress(b""))
        + png_chunk(b"IEND", b"")
    )


def test_bombs_are_refused_by_their_header() -> None:
    with pytest.raises(InvalidFile, match="too large"):
        read_image(_header_only_png(4580, 4580))


def test_pixel_limit_on_both_sides() -> None:
    limits = ImageLimits(max_pixels=60 * 40)
    assert read_image(encode_image(IMAGE, "PNG"), limits).width == 60
    with pytest.raises(InvalidFile, match="60x41"):
        read_image(encode_image(IMAGE.resize((60, 41)), "PNG"), limits)
    assert ImageLimits().max_pixels == 20 * MEGAPIXEL


def test_byte_limit_on_both_sides() -> None:
    data = encode_image(IMAGE, "PNG")
    assert decode_image(to_base64(data).encode(), ImageLimits(max_bytes=len(data))) == read_image(data)
    with pytest.raises(InvalidFile, match="file is too large"):
        decode_image(to_base64(data).encode(), ImageLimits(max_bytes=len(data) - 1))
    with pytest.raises(InvalidFile, match="file is too large"):
        decode_image(b"A" * 5000, ImageLimits(max_bytes=1000))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_orientation_is_applied(kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    upright = Image.new("RGB", (60, 40), "white")
    upright.paste("black", (0, 0, 30, 40))
    image = read_image(encode_image(upright, kind, exif=exif))
    assert (image.width, image.height) == (40, 60)
    assert pixels(image)[10, 20].max() < 60
    assert pixels(image)[50, 20].min() > 200
    assert read_image(image.data).data == image.data


def test_wide_grey_is_scaled_not_clipped() -> None:
    image = as_input(Image.fromarray(np.array([[0, 0x8000, 0xFFFF]], np.uint16)))
    assert pixels(image).tolist() == [[0, 127, 255]]


@pytest.mark.parametrize(
    ("image", "kind", "mode"),
    [
        (IMAGE.convert("CMYK"), "JPEG", "RGB"),
        (IMAGE.convert("P"), "PNG", "RGB"),
        (IMAGE.convert("1"), "PNG", "L"),
        (IMAGE.convert("LA"), "PNG", "RGBA"),
    ],
)
def test_unusual_modes_are_normalised(image: Image.Image, kind: str, mode: str) -> None:
    normal = read_image(encode_image(image, kind))
    assert _mode(normal) == mode
    assert normal.has_alpha == (mode == "RGBA")


def test_a_transparent_colour_becomes_alpha() -> None:
    for source, colour in ((Image.new("RGB", (2, 1), "red"), (255, 0, 0)), (Image.new("P", (2, 1), 0), 0)):
        image = read_image(encode_image(source, "PNG", transparency=colour))
        assert image.has_alpha
        assert pixels(image)[0, 0, 3] == 0


@pytest.mark.parametrize("kind", ["WEBP", "PNG"])
def test_animations_give_their_first_frame(kind: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    image = read_image(encode_image(frames[0], kind, save_all=True, append_images=frames[1:], lossless=True))
    assert pixels(image)[4, 4].tolist() == [255, 0, 0]


@pytest.mark.parametrize("size", [(6500, 100), (100, 6500)])
def test_an_image_that_is_all_edge_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(InvalidFile, match="too narrow"):
        read_image(encode_image(Image.new("L", size), "PNG"))


@pytest.mark.parametrize(
    "extra",
    [
        png_chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(3 * 2**20))),
        png_chunk(b"zTXt", b"k\0\0" + zlib.compress(b"x"))[:-1] + b"?",
        png_chunk(b"eXIf", b"nonsense"),
    ],
    ids=["large text", "wrong checksum", "bad exif"],
)
def test_a_png_is_no_worse_for_what_stands_beside_its_pixels(extra: bytes) -> None:
    assert read_image(png_with(extra, IMAGE)).data == read_image(encode_image(IMAGE, "PNG")).data


def test_a_jpeg_without_the_marker_of_its_end_is_taken() -> None:
    data = encode_image(IMAGE, "JPEG")
    assert read_image(data[:-2]).data == read_image(data).data


XMP = b"""<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="6"/></rdf:RDF></x:xmpmeta>"""


def test_xmp_turns_no_image() -> None:
    image = read_image(encode_image(IMAGE, "JPEG", xmp=XMP))
    assert (image.width, image.height) == IMAGE.size


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"GIF89a", "GIF"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1", "HEIC"),
        (b"\0\0\0\x0cJXL \r\n", "JPEG XL"),
        (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
        (b"hello", "not an image, or a damaged one"),
    ],
)
def test_formats_that_are_not_taken_are_named(data: bytes, name: str) -> None:
    with pytest.raises(InvalidFile, match=name if " " in name and "JPEG" not in name else f"{name} is not supported"):
        read_image(data + bytes(64))


SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
_COLORANTS = {
    b"rXYZ": (0.51512, 0.24120, -0.00105),
    b"gXYZ": (0.29198, 0.69225, 0.04189),
    b"bXYZ": (0.15710, 0.06657, 0.78407),
}
"""Of Display P3, seen by D50."""


def display_p3() -> bytes:
    """The profile of sRGB with other primaries, which is all that they differ by."""
    profile = bytearray(SRGB)
    (count,) = struct.unpack_from(">I", profile, 128)
    for at in range(132, 132 + 12 * count, 12):
        name, offset, _ = struct.unpack_from(">4sII", profile, at)
        if name in _COLORANTS:
            struct.pack_into(">3i", profile, offset + 8, *(round(part * 65536) for part in _COLORANTS[name]))
    return bytes(profile)


P3 = display_p3()


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [((220, 60, 50), (239, 35, 36)), ((128, 128, 128), (128, 128, 128)), ((40, 160, 60), (0, 163, 40))],
)
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_wide_gamut_is_brought_into_srgb(kind: str, wide: tuple[int, int, int], narrow: tuple[int, int, int]) -> None:
    source = encode_image(
        Image.new("RGB", (16, 16), wide), kind, icc_profile=P3, **({} if kind == "PNG" else {"quality": 100})
    )
    result = read_image(source)
    assert b"iCCP" not in result.data
    assert np.abs(pixels(result)[8, 8].astype(int) - narrow).max() <= 6


def test_what_is_srgb_stays_to_the_pixel() -> None:
    assert convert_to_srgb(IMAGE, SRGB).tobytes() == IMAGE.tobytes()


def test_opacity_stays() -> None:
    converted = convert_to_srgb(Image.new("RGBA", (4, 4), (220, 60, 50, 77)), P3)
    assert converted.mode == "RGBA"
    pixel = np.asarray(converted)[0, 0]
    assert pixel[3] == 77
    assert abs(int(pixel[0]) - 239) <= 2


@pytest.mark.parametrize("profile", [None, b"", b"no profile", P3[:200], b"\0" * 2**21, SRGB])
@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_a_profile_that_does_not_fit_changes_nothing(mode: str, profile: bytes | None) -> None:
    plain = Image.new(mode, (4, 4), 90)
    assert convert_to_srgb(plain, profile) is plain


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("restarts", [0, 1])
def test_scans_are_counted(progressive: bool, restarts: int) -> None:
    data = encode_image(NOISE.convert("RGB"), "JPEG", progressive=progressive, restart_marker_rows=restarts)
    assert count_scans(data) == (10 if progressive else 1)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("behind", [b"\xff\xda\x00\x08" * 1000, bytes(12 * MAX_PARTS)], ids=["scans", "zeros"])
def test_what_follows_an_image_is_not_counted(kind: str, behind: bytes) -> None:
    assert count_scans(encode_image(NOISE, kind) + behind) == 1


def test_what_stands_in_a_segment_is_not_counted() -> None:
    thumbnail = encode_image(NOISE, "JPEG", progressive=True) * 40
    assert count_scans(encode_image(NOISE, "JPEG", comment=thumbnail[:60_000])) == 1


def test_scans_are_bounded() -> None:
    enough = MAX_SCANS - count_scans(repeated_scan(64, 0))
    assert count_scans(repeated_scan(64, enough)) == MAX_SCANS
    with pytest.raises(InvalidFile, match="more than 100 scans"):
        count_scans(repeated_scan(64, enough + 1))


def test_large_images_may_have_fewer_scans() -> None:
    data = repeated_scan(64, 30)
    assert read_image(data).width == 64
    with pytest.raises(InvalidFile, match="too many scans for its size"):
        read_image(data, ImageLimits(max_pixels=64 * 64))


@pytest.mark.parametrize(
    "data",
    [
        encode_image(NOISE, "JPEG").replace(b"\xff\xda", b"\xff\xfe\x00\x02" * (MAX_PARTS + 1) + b"\xff\xda", 1),
        png_with(png_chunk(b"tEXt") * (MAX_PARTS + 1)),
        webp_with(b"JUNK\0\0\0\0" * (MAX_PARTS + 1)),
    ],
    ids=["JPEG", "PNG", "WEBP"],
)
def test_parts_are_bounded(data: bytes) -> None:
    with pytest.raises(InvalidFile, match="parts"):
        count_scans(data)


@pytest.mark.parametrize("kind", ["WEBP", "PNG"])
def test_frames_are_bounded(kind: str) -> None:
    def film(frames: int) -> bytes:
        images = [Image.new("L", (1, 1), n % 256) for n in range(frames)]
        return encode_image(images[0], kind, save_all=True, append_images=images[1:], lossless=True)

    assert count_scans(film(MAX_FRAMES)) == 1
    with pytest.raises(InvalidFile, match="frames"):
        count_scans(film(MAX_FRAMES + 1))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_any_part_of_a_file_can_be_looked_at(kind: str) -> None:
    data = encode_image(NOISE, kind)
    for length in range(0, len(data), 7):
        assert count_scans(data[:length]) == 1


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((3000, 2000), (1254, 836)),
        ((2000, 3000), (836, 1254)),
        ((2048, 2048), (1024, 1024)),
        ((18_000, 300), (6256, 104)),
    ],
)
def test_the_ratio_is_kept(size: tuple[int, int], expected: tuple[int, int]) -> None:
    image = scale(input_image(size, "L"), MEGAPIXEL)
    assert pixels(image).shape[::-1] == (image.width, image.height) == expected


def test_colours_are_weighed_by_their_opacity() -> None:
    half = Image.new("RGBA", (400, 400), (255, 0, 0, 0))
    half.paste((0, 0, 255, 255), (0, 0, 201, 400))
    edge = pixels(scale(as_input(half), 100 * 100))[50, 50]
    assert edge[0] <= 3, "no red shines through from what is transparent"
    assert edge[2] >= 252
