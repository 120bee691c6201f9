"""Multipart forms as clients of many languages write them."""

from __future__ import annotations

from base64 import b64encode

import pytest
from fastapi import HTTPException, Request
from starlette.types import Message

from serve_app.api.openai.schema import ImageEdit, ImageGeneration
from serve_app.api.openai.translation import RequestFields, read, validate
from serve_app.submission.errors import Invalid

FILE = b"\x89PNG\xff\0"
TEXT = b64encode(FILE).decode()


async def read_form(*parts: tuple[str, bytes]) -> RequestFields:
    """Reads a form of these parts, each with the rest of its head."""
    body = b"".join(
        b"--bnd\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n" % (head.encode(), data) for head, data in parts
    )

    async def receive() -> Message:
        return {"type": "http.request", "body": body + b"--bnd--\r\n"}

    headers = [(b"content-type", b'multipart/form-data; boundary="bnd"')]
    return await read(Request({"type": "http", "method": "POST", "headers": headers}, receive))


@pytest.mark.parametrize("field", ["size", "user", "n", "response_format", "model", "seed", "guidance"])
@pytest.mark.parametrize("unset", [b"", b"null", b"undefined"])
async def test_empty_or_null_text_is_not_set(field: str, unset: bytes) -> None:
    form = await read_form(("name=prompt", b""), (f'name="{field}"', unset))
    assert form.fields == {"prompt": ""}


@pytest.mark.parametrize(
    ("field", "sent", "value"),
    [
        *(("n", b"0", None), ("n", b"2", 2), ("output_compression", b"0", 0), ("partial_images", b"0", 0)),
        *(("stream", b"False", False), ("user", b"0", "0")),
    ],
)
async def test_text_is_parsed_by_the_type_of_its_field(field: str, sent: bytes, value: object) -> None:
    form = await read_form(("name=prompt", b"x"), (f'name="{field}"', sent))
    assert getattr(validate(ImageEdit, form.parse_texts(form.fields, ImageEdit)), field) == value


@pytest.mark.parametrize(
    ("head", "data", "text"),
    [
        ("name=user\r\nContent-Type: text/plain; charset=utf-8", "é".encode(), "é"),
        ("name=user\r\nContent-Type: text/plain; charset=ISO-8859-1", "Ã©".encode("latin-1"), "Ã©"),
        ('name=user\r\nContent-Type: text/plain; charset="utf-16"', "é".encode("utf-16"), "é"),
        ("name=user\r\nContent-Type: image/png", b"\xff", "ÿ"),
        ("name=user\r\nContent-Type: application/json", b"1", "1"),
        ("name=user\r\nContent-Transfer-Encoding: 8bit", "é".encode(), "é"),
        ("name=user\r\nContent-Transfer-Encoding: BASE64", b64encode("é".encode()), "é"),
    ],
)
async def test_part_without_a_filename_is_text(head: str, data: bytes, text: str) -> None:
    form = await read_form((head, data))
    assert (form.fields, form.files) == ({"user": text}, {})


@pytest.mark.parametrize(
    "head",
    [
        *('name="image"; filename="a.png"', "name=image; filename=a.png", 'name="image"; filename=""'),
        *("name=\"image\"; filename*=UTF-8''a%C3%A9.png", 'name="image[]"; filename="a.png"'),
        'name="image[0]"; filename="a.png"\r\nContent-Type: text/plain; charset=utf-8',
        'name="image"; filename="a.png"\r\nContent-Transfer-Encoding: binary',
    ],
)
async def test_part_with_a_filename_is_a_file(head: str) -> None:
    form = await read_form((head, FILE))
    assert (form.fields, form.files) == ({}, {"image": [TEXT]})


async def test_files_are_sorted_by_their_indexes() -> None:
    names = ("image[10]", "image[2]", "image[]")
    form = await read_form(*((f'name="{name}"; filename=a', name.encode()) for name in names))
    assert form.files == {"image": [b64encode(names[n].encode()).decode() for n in (2, 1, 0)]}


async def test_encoded_file_is_decoded_and_empty_one_left_out() -> None:
    encoded = await read_form(("name=image; filename=a\r\nContent-Transfer-Encoding: base64", TEXT.encode()))
    assert encoded.files == {"image": [TEXT]}
    empty = await read_form(('name="mask"; filename=""\r\nContent-Type: application/octet-stream', b""))
    assert empty.files == {}


@pytest.mark.parametrize(
    ("head", "data", "field", "says"),
    [
        ("name=image; filename=a.png", b"", "image", "empty"),
        ("name=user\r\nContent-Type: text/plain; charset=utf-8", b"\xff", "user", "not in utf-8"),
        ("name=user\r\nContent-Type: text/plain; charset=klingon", b"x", "user", "not in klingon"),
        ("name=user\r\nContent-Transfer-Encoding: base64", b"%", "user", "not valid base64"),
        ("name=image; filename=a\r\nContent-Transfer-Encoding: x-uuencode", b"x", "image", "not valid x-uuencode"),
        ("name=image", b"x" * (256 * 1024 + 1), "image", "with a filename"),
        ("name=prompt; filename=a.txt", b"x", "prompt", "without a filename"),
        ("name=mask", b"x", "mask", "with a filename"),
    ],
)
async def test_invalid_part_is_refused_by_its_field(head: str, data: bytes, field: str, says: str) -> None:
    with pytest.raises(Invalid, match=says) as refused:
        (await read_form((head, data))).check_files(ImageGeneration, ("image", "mask"))
    assert refused.value.entry["loc"] == ["body", field]


async def test_invalid_form_is_refused() -> None:
    with pytest.raises(HTTPException) as refused:
        await read_form(("x=1", b"x"))
    assert refused.value.status_code == 400
