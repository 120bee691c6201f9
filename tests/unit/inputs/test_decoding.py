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
from support.input_images import as_input, pixels

from serve_app.inputs.geometry import MEGAPIXEL
from serve_app.inputs.images import (
    MAX_FRAMES,
    MAX_PARTS,
    MAX_SCANS,
    InvalidFile,
    convert_to_srgb,
    count_scans,
    decode_image,
    read_image,
)
from serve_app.inputs.settings import ImageLimits

NOISE = Image.effect_noise((60, 40), 80)
IMAGE = Image.merge("RGB", (NOISE, NOISE.rotate(180), NOISE))
KINDS = ("JPEG", "PNG", "WEBP")
XMP = b"""<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="6"/></rdf:RDF></x:xmpmeta>"""


@pytest.mark.parametrize(
    ("kind", "mode"), [*((kind, mode) for kind in KINDS for mode in ("L", "RGB")), ("PNG", "RGBA"), ("WEBP", "RGBA")]
)
def test_file_is_encoded_again_with_the_same_pixels(kind: str, mode: str) -> None:
    source = IMAGE.convert(mode)
    if mode == "RGBA":
        source.putalpha(NOISE)
    data = encode_image(source, kind)
    image = decode_image(to_base64(data).encode())
    assert (image.width, image.height, image.has_alpha) == (60, 40, mode == "RGBA")
    with Image.open(io.BytesIO(data)) as original, Image.open(io.BytesIO(image.data)) as stored:
        assert stored.mode == original.mode
        assert stored.tobytes() == original.tobytes()
    assert read_image(image.data) == image
    assert "data" not in repr(image)


@pytest.mark.parametrize("kind", KINDS)
def test_only_pixels_of_a_file_are_kept(kind: str) -> None:
    exif = Image.Exif()
    exif[0x010E] = "a garden"
    assert b"garden" not in read_image(encode_image(IMAGE, kind, exif=exif, comment=b"a garden") + b"garden").data


def test_base64_is_read_in_every_notation() -> None:
    data = encode_image(IMAGE, "PNG")
    text, urlsafe = to_base64(data), base64.urlsafe_b64encode(data).decode()
    lines = "\r\n".join(text[start : start + 76] for start in range(0, len(text), 76))
    uris = (f"data:image/png;base64,{text}", f"DATA:image/png;charset=x;BASE64,{text}", f"data:;base64,{lines}\n")
    for value in (text, lines, urlsafe, text.rstrip("="), *uris):
        assert decode_image(value.encode()) == read_image(data)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        *(("", "not an image"), ("***", "base64"), ("caf\u00e9", "base64")),
        *(("data:image/png,abc", "data: URI"), ("data:image/png;base64", "data: URI")),
    ],
)
def test_value_without_an_image_is_refused(value: str, problem: str) -> None:
    with pytest.raises(InvalidFile, match=problem):
        decode_image(value.encode())


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_file_is_refused(kind: str) -> None:
    data = encode_image(IMAGE.resize((600, 400)), kind)
    for part in (len(data) // 4, len(data) // 2, len(data) * 9 // 10):
        with pytest.raises(InvalidFile, match=r"ends early|damaged"):
            read_image(data[:part])


@given(st.binary(max_size=300), st.integers(0, 400))
def test_damaged_image_is_decoded_or_refused(junk: bytes, start: int) -> None:
    data = encode_image(IMAGE, "PNG")
    spoilt = data[:start] + junk + data[start + len(junk) :]
    try:
        image = read_image(spoilt)
    except InvalidFile:
        return
    assert (image.width, image.height) != (0, 0)


def test_size_and_ratio_are_limited_before_the_image_is_decoded() -> None:
    limits = ImageLimits(max_pixels=60 * 40)
    assert read_image(encode_image(IMAGE, "PNG"), limits).width == 60
    with pytest.raises(InvalidFile, match="60x41"):
        read_image(encode_image(IMAGE.resize((60, 41)), "PNG")[:60], limits)
    assert ImageLimits().max_pixels == 20 * MEGAPIXEL
    for size in ((6500, 100), (100, 6500)):
        with pytest.raises(InvalidFile, match="too narrow"):
            read_image(encode_image(Image.new("L", size), "PNG")[:60])
    assert read_image(encode_image(Image.new("L", (64, 1)), "PNG")).width == 64


def test_byte_limit_of_images_holds_for_base64() -> None:
    data = encode_image(IMAGE, "PNG")
    assert decode_image(to_base64(data).encode(), ImageLimits(max_bytes=len(data))) == read_image(data)
    with pytest.raises(InvalidFile, match="file is too large"):
        decode_image(to_base64(data).encode(), ImageLimits(max_bytes=len(data) - 1))
    with pytest.raises(InvalidFile, match="file is too large"):
        decode_image(b"A" * 5000, ImageLimits(max_bytes=1000))


@pytest.mark.parametrize("kind", KINDS)
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
    xmp = read_image(encode_image(IMAGE, "JPEG", xmp=XMP))
    assert (xmp.width, xmp.height) == IMAGE.size, "the orientation in XMP is ignored"


def test_16_bit_grey_and_a_transparent_colour_are_converted() -> None:
    grey = as_input(Image.fromarray(np.array([[0, 0x8000, 0xFFFF]], np.uint16)))
    assert pixels(grey).tolist() == [[0, 127, 255]]
    for source, colour in ((Image.new("RGB", (2, 1), "red"), (255, 0, 0)), (Image.new("P", (2, 1), 0), 0)):
        image = read_image(encode_image(source, "PNG", transparency=colour))
        assert image.has_alpha
        assert pixels(image)[0, 0, 3] == 0


@pytest.mark.parametrize(
    ("source", "kind", "mode"),
    [("CMYK", "JPEG", "RGB"), ("P", "PNG", "RGB"), ("1", "PNG", "L"), ("LA", "PNG", "RGBA")],
)
def test_unusual_mode_becomes_grey_rgb_or_rgba(source: str, kind: str, mode: str) -> None:
    normal = read_image(encode_image(IMAGE.convert(source), kind))
    assert pixels(normal).shape[2:] == {"L": (), "RGB": (3,), "RGBA": (4,)}[mode]
    assert normal.has_alpha == (mode == "RGBA")


@pytest.mark.parametrize("kind", ["WEBP", "PNG"])
def test_animation_becomes_its_first_frame(kind: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    image = read_image(encode_image(frames[0], kind, save_all=True, append_images=frames[1:], lossless=True))
    assert pixels(image)[4, 4].tolist() == [255, 0, 0]


@pytest.mark.parametrize(
    "extra",
    [
        png_chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(3 * 2**20))),
        png_chunk(b"zTXt", b"k\0\0" + zlib.compress(b"x"))[:-1] + b"?",
        png_chunk(b"eXIf", b"nonsense"),
    ],
    ids=["large text", "wrong checksum", "bad exif"],
)
def test_damaged_metadata_of_a_png_is_ignored(extra: bytes) -> None:
    assert read_image(png_with(extra, IMAGE)).data == read_image(encode_image(IMAGE, "PNG")).data


def test_jpeg_without_its_end_marker_is_decoded() -> None:
    data = encode_image(IMAGE, "JPEG")
    assert read_image(data[:-2]).data == read_image(data).data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GIF89a", "GIF is not supported"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1", "HEIC is not supported"),
        (b"\0\0\0\x0cJXL \r\n", "JPEG XL is not supported"),
        (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "SVG is not supported"),
        (b"hello", "not an image, or a damaged one"),
    ],
)
def test_unsupported_format_is_named(data: bytes, message: str) -> None:
    with pytest.raises(InvalidFile, match=message):
        read_image(data + bytes(64))


SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
_PRIMARIES = {
    b"rXYZ": (0.51512, 0.24120, -0.00105),
    b"gXYZ": (0.29198, 0.69225, 0.04189),
    b"bXYZ": (0.15710, 0.06657, 0.78407),
}
"""Primaries of Display P3, adapted to D50."""


def display_p3() -> bytes:
    """Returns the profile of sRGB with other primaries, which is all that they differ by."""
    profile = bytearray(SRGB)
    (count,) = struct.unpack_from(">I", profile, 128)
    for at in range(132, 132 + 12 * count, 12):
        name, offset, _ = struct.unpack_from(">4sII", profile, at)
        if name in _PRIMARIES:
            struct.pack_into(">3i", profile, offset + 8, *(round(part * 65536) for part in _PRIMARIES[name]))
    return bytes(profile)


P3 = display_p3()


@pytest.mark.parametrize("kind", KINDS)
def test_wide_gamut_is_converted_to_srgb(kind: str) -> None:
    quality = {} if kind == "PNG" else {"quality": 100}
    for wide, narrow in (((220, 60, 50), (239, 35, 36)), ((128,) * 3, (128,) * 3), ((40, 160, 60), (0, 163, 40))):
        result = read_image(encode_image(Image.new("RGB", (16, 16), wide), kind, icc_profile=P3, **quality))
        assert b"iCCP" not in result.data
        assert np.abs(pixels(result)[8, 8].astype(int) - narrow).max() <= 6


def test_conversion_keeps_srgb_pixels_and_opacity() -> None:
    assert convert_to_srgb(IMAGE, SRGB).tobytes() == IMAGE.tobytes()
    converted = convert_to_srgb(Image.new("RGBA", (4, 4), (220, 60, 50, 77)), P3)
    assert converted.mode == "RGBA"
    pixel = np.asarray(converted)[0, 0]
    assert pixel[3] == 77
    assert abs(int(pixel[0]) - 239) <= 2


@pytest.mark.parametrize("profile", [None, b"", b"no profile", P3[:200], b"\0" * 2**21, SRGB])
@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_unfit_profile_changes_nothing(mode: str, profile: bytes | None) -> None:
    plain = Image.new(mode, (4, 4), 90)
    assert convert_to_srgb(plain, profile) is plain


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("restarts", [0, 1])
def test_scans_are_counted(progressive: bool, restarts: int) -> None:
    data = encode_image(NOISE.convert("RGB"), "JPEG", progressive=progressive, restart_marker_rows=restarts)
    assert count_scans(data) == (10 if progressive else 1)


@pytest.mark.parametrize("kind", KINDS)
def test_only_scans_of_the_image_itself_are_counted(kind: str) -> None:
    for behind in (b"\xff\xda\x00\x08" * 1000, bytes(12 * MAX_PARTS)):
        assert count_scans(encode_image(NOISE, kind) + behind) == 1
    thumbnail = encode_image(NOISE, "JPEG", progressive=True) * 40
    assert count_scans(encode_image(NOISE, "JPEG", comment=thumbnail[:60_000])) == 1


def test_number_of_scans_is_limited_in_all_and_by_size() -> None:
    enough = MAX_SCANS - count_scans(repeated_scan(64, 0))
    assert count_scans(repeated_scan(64, enough)) == MAX_SCANS
    with pytest.raises(InvalidFile, match="more than 100 scans"):
        count_scans(repeated_scan(64, enough + 1))
    assert read_image(repeated_scan(64, 30)).width == 64
    with pytest.raises(InvalidFile, match="too many scans for its size"):
        read_image(repeated_scan(64, 30), ImageLimits(max_pixels=64 * 64))


@pytest.mark.parametrize(
    "data",
    [
        encode_image(NOISE, "JPEG").replace(b"\xff\xda", b"\xff\xfe\x00\x02" * (MAX_PARTS + 1) + b"\xff\xda", 1),
        png_with(png_chunk(b"tEXt") * (MAX_PARTS + 1)),
        webp_with(b"JUNK\0\0\0\0" * (MAX_PARTS + 1)),
    ],
    ids=["JPEG", "PNG", "WEBP"],
)
def test_number_of_parts_is_limited(data: bytes) -> None:
    with pytest.raises(InvalidFile, match="parts"):
        count_scans(data)


@pytest.mark.parametrize("kind", ["WEBP", "PNG"])
def test_number_of_frames_is_limited(kind: str) -> None:
    def film(frames: int) -> bytes:
        images = [Image.new("L", (1, 1), n % 256) for n in range(frames)]
        return encode_image(images[0], kind, save_all=True, append_images=images[1:], lossless=True)

    assert count_scans(film(MAX_FRAMES)) == 1
    with pytest.raises(InvalidFile, match="frames"):
        count_scans(film(MAX_FRAMES + 1))
