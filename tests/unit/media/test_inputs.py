from __future__ import annotations

import base64
import io
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from support.fetching import fetcher
from support.pictures import encoded, file_of
from support.website import Website

from serve_app.media.geometry import MEGAPIXEL
from serve_app.media.inputs import BadPicture, InputLimits, InputPicture, decode_image, load_picture, read_image

FETCHER = fetcher("127.0.0.0/8")
NOISE = Image.effect_noise((60, 40), 80)
PICTURE = Image.merge("RGB", (NOISE, NOISE.rotate(180), NOISE))


def _pixel(image: InputPicture, x: int, y: int) -> Any:
    with Image.open(io.BytesIO(image.data)) as opened:
        return opened.getpixel((x, y))


def _mode(image: InputPicture) -> str:
    with Image.open(io.BytesIO(image.data)) as opened:
        return opened.mode


@pytest.mark.parametrize(("kind", "extension"), [("JPEG", "jpeg"), ("PNG", "png"), ("WEBP", "webp")])
def test_good_files_keep_their_bytes(kind: str, extension: str) -> None:
    data = file_of(PICTURE, kind)
    image = decode_image(encoded(data))
    assert image == InputPicture(data, f"image/{extension}", extension, 60, 40, has_alpha=False)
    assert "data" not in repr(image)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_plain_modes_are_kept(mode: str) -> None:
    data = file_of(PICTURE.convert(mode), "PNG")
    image = read_image(data)
    assert image.data == data
    assert image.has_alpha == (mode == "RGBA")


def test_every_way_to_write_base64() -> None:
    data = file_of(PICTURE, "PNG")
    text = encoded(data)
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
        assert decode_image(value).data == data


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "not a picture"),
        ("***", "base64"),
        ("aGVsbG8=", "not a picture"),
        ("data:image/png,abc", "data: URI"),
        ("data:image/png;base64", "data: URI"),
        ("file:///etc/passwd", "base64"),
        ("ftp://example.test/cat.png", "base64"),
        ("caf\u00e9", "base64"),
    ],
)
def test_values_that_are_no_picture(value: str, problem: str) -> None:
    with pytest.raises(BadPicture, match=problem) as refused:
        decode_image(value)
    assert "expected a JPEG, PNG or WebP picture as base64, a data: URI or an http(s) URL" in str(refused.value)
    assert "at most 20 MB and 20 megapixels" in str(refused.value)


@pytest.mark.parametrize("kind", ["GIF", "TIFF", "BMP", "PPM", "ICO"])
def test_other_formats(kind: str) -> None:
    with pytest.raises(BadPicture, match="not a picture"):
        read_image(file_of(PICTURE, kind))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_truncated_files(kind: str) -> None:
    data = file_of(PICTURE, kind)
    for part in (len(data) // 4, len(data) // 2, len(data) * 9 // 10):
        with pytest.raises(BadPicture, match="damaged"):
            read_image(data[:part])


@given(st.binary(max_size=300), st.integers(0, 400))
def test_spoilt_bytes_never_raise_anything_else(junk: bytes, start: int) -> None:
    data = file_of(PICTURE, "PNG")
    spoilt = data[:start] + junk + data[start + len(junk) :]
    try:
        image = read_image(spoilt)
    except BadPicture:
        return
    assert (image.width, image.height) != (0, 0)


def _header_only_png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [4580, 10_000, 30_000])
def test_bombs_are_refused_by_their_header(side: int) -> None:
    with pytest.raises(BadPicture, match="too large"):
        read_image(_header_only_png(side, side))


def test_pixel_limit_on_both_sides() -> None:
    limits = InputLimits(max_pixels=60 * 40)
    assert read_image(file_of(PICTURE, "PNG"), limits).width == 60
    with pytest.raises(BadPicture, match="60x41"):
        read_image(file_of(PICTURE.resize((60, 41)), "PNG"), limits)
    assert InputLimits().max_pixels == 20 * MEGAPIXEL


def test_byte_limit_on_both_sides() -> None:
    data = file_of(PICTURE, "PNG")
    assert decode_image(encoded(data), InputLimits(max_bytes=len(data))).data == data
    with pytest.raises(BadPicture, match="file is too large"):
        decode_image(encoded(data), InputLimits(max_bytes=len(data) - 1))
    with pytest.raises(BadPicture, match="file is too large"):
        decode_image("A" * 5000, InputLimits(max_bytes=1000))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_orientation_is_applied(kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    upright = Image.new("RGB", (60, 40), "white")
    upright.paste("black", (0, 0, 30, 40))
    image = read_image(file_of(upright, kind, exif=exif))
    assert (image.width, image.height, image.extension) == (40, 60, "png")
    assert max(_pixel(image, 20, 10)) < 60
    assert min(_pixel(image, 20, 50)) > 200
    assert read_image(image.data).data == image.data


def test_orientation_that_needs_no_turning_keeps_the_bytes() -> None:
    exif = Image.Exif()
    exif[0x0112] = 1
    data = file_of(PICTURE, "JPEG", exif=exif)
    assert read_image(data).data == data


def test_damaged_metadata_does_not_spoil_a_picture() -> None:
    data = file_of(PICTURE, "JPEG", exif=b"Exif\0\0garbage that is no TIFF header")
    assert read_image(data).width == 60


def test_wide_grey_is_scaled_not_clipped() -> None:
    wide = Image.new("I;16", (3, 1))
    for x, value in enumerate((0, 0x8000, 0xFFFF)):
        wide.putpixel((x, 0), value)
    image = read_image(file_of(wide, "PNG"))
    assert _mode(image) == "L"
    assert [_pixel(image, x, 0) for x in range(3)] == [0, 127, 255]


@pytest.mark.parametrize(
    ("image", "kind", "mode"),
    [
        (PICTURE.convert("CMYK"), "JPEG", "RGB"),
        (PICTURE.convert("P"), "PNG", "RGB"),
        (PICTURE.convert("1"), "PNG", "L"),
        (PICTURE.convert("LA"), "PNG", "RGBA"),
    ],
)
def test_unusual_modes_are_normalised(image: Image.Image, kind: str, mode: str) -> None:
    normal = read_image(file_of(image, kind))
    assert (normal.content_type, _mode(normal)) == ("image/png", mode)
    assert normal.has_alpha == (mode == "RGBA")


def test_a_transparent_colour_becomes_alpha() -> None:
    for source, colour in ((Image.new("RGB", (2, 1), "red"), (255, 0, 0)), (Image.new("P", (2, 1), 0), 0)):
        image = read_image(file_of(source, "PNG", transparency=colour))
        assert image.has_alpha
        assert _mode(image) == "RGBA"
        assert _pixel(image, 0, 0)[3] == 0


def test_colours_of_print_files_survive() -> None:
    image = read_image(file_of(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", icc_profile=b"for print"))
    red, green, blue = _pixel(image, 4, 4)
    assert red > 200
    assert max(green, blue) < 60
    with Image.open(io.BytesIO(image.data)) as opened:
        assert "icc_profile" not in opened.info


@pytest.mark.parametrize("kind", ["WEBP", "PNG"])
def test_animations_give_their_first_frame(kind: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    image = read_image(file_of(frames[0], kind, save_all=True, append_images=frames[1:], lossless=True))
    assert image.extension == "png"
    assert _pixel(image, 4, 4) == (255, 0, 0)
    with Image.open(io.BytesIO(image.data)) as opened:
        assert getattr(opened, "n_frames", 1) == 1


async def test_url_and_base64_load_alike(web: Website) -> None:
    data = file_of(PICTURE, "JPEG")
    web.put("/cat", data)
    fetched = await load_picture(f" {web.url('/cat')} ", FETCHER)
    assert fetched.data == data
    assert await load_picture(encoded(data), FETCHER) == fetched


async def test_redirects_are_followed_up_to_the_limit(web: Website) -> None:
    for n, status in ((4, 301), (3, 302), (2, 307), (1, 308)):
        web.put(f"/{n}", status=status, location=f"/{n - 1}")
    web.put("/0", file_of(PICTURE, "PNG"))
    assert (await load_picture(web.url("/3"), FETCHER)).width == 60
    with pytest.raises(BadPicture, match="redirects more than 3 times"):
        await load_picture(web.url("/4"), FETCHER)


async def test_a_redirect_to_an_inside_address_is_refused(web: Website) -> None:
    open_port = fetcher("public.test", resolve=_one_name_public)
    web.put("/", status=302, location=web.url("/secret"))
    with pytest.raises(BadPicture, match=r"refused.*public internet"):
        await load_picture(web.url(host="public.test"), open_port)
    web.put("/", status=302, location="file:///etc/passwd")
    with pytest.raises(BadPicture, match=r"refused.*http://"):
        await load_picture(web.url(host="public.test"), open_port)
    assert web.asked == ["/", "/"]


async def _one_name_public(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def test_inside_urls_are_refused_without_an_address_in_the_reason(web: Website) -> None:
    with pytest.raises(BadPicture, match="public internet") as refused:
        await load_picture(web.url(host="localhost"), fetcher())
    assert "127" not in str(refused.value)
    assert not web.asked


@pytest.mark.parametrize("status", [204, 304, 403, 404, 500])
async def test_other_statuses(status: int, web: Website) -> None:
    web.put("/", b"", status=status)
    with pytest.raises(BadPicture, match=f"HTTP status {status}"):
        await load_picture(web.url(), FETCHER)


async def test_a_body_over_the_limit_is_cut_off(web: Website) -> None:
    web.put("/", b"x" * 3_000_000)
    with pytest.raises(BadPicture, match="file is too large"):
        await load_picture(web.url(), FETCHER, InputLimits(max_bytes=1_000_000))


async def test_a_body_that_never_comes(web: Website) -> None:
    web.put("/", b"x", delay_s=1.0)
    with pytest.raises(BadPicture, match=r"within 0\.2 s"):
        await load_picture(web.url(), FETCHER, InputLimits(timeout_s=0.2))


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://127.0.0.1:bad/", "HTTPS://127.0.0.1:1/"])
async def test_urls_that_cannot_be_fetched(url: str) -> None:
    with pytest.raises(BadPicture, match="could not be fetched"):
        await load_picture(url, FETCHER)


async def test_a_broken_answer(web: Website) -> None:
    web.put("/", b"short", content_length="500")
    with pytest.raises(BadPicture, match="could not be fetched"):
        await load_picture(web.url(), FETCHER)


@pytest.mark.parametrize("size", [(6500, 100), (100, 6500)])
def test_a_picture_that_is_all_edge_is_refused(size: tuple[int, int]) -> None:
    buffer = io.BytesIO()
    Image.new("L", size).save(buffer, "PNG")
    with pytest.raises(BadPicture, match="too narrow"):
        read_image(buffer.getvalue())
