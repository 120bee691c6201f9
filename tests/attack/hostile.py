"""Hostile JSON bodies, images and videos. The same random numbers make the same ones.

Files are small to send and large, endless or broken to open.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any, Final, TypeAlias

from PIL import Image
from support.hostile_images import png_chunk, png_with, repeated_scan, webp_with
from support.images import encode_image
from support.video_encoding import make_video

from attack.wire import JSON, Request

Json: TypeAlias = dict[str, Any]
Corpus: TypeAlias = Mapping[str, Any]
NO_HTTP: Final = frozenset({"framing", "odd header"})
"""Mutations whose requests may be invalid HTTP."""
_MB: Final = 2**20
_CHUNKED: Final = ("Transfer-Encoding", "chunked")
_MARK: Final = "\ue000here\ue000"
"""Placeholder of a value until the body is text."""
Mutation: TypeAlias = Callable[[Random, Json, Corpus], Request]
"""Returns a request without method and target."""


def _make_request(body: bytes, headers: tuple[tuple[str, str], ...] = JSON, **more: Any) -> Request:
    return Request("", "", body, headers, **more)


def _to_json(body: Any) -> bytes:
    return json.dumps(body).encode()


def _insert(random: Random, body: Json, value: str) -> bytes:
    """Returns the body with `value`, JSON or not, as an existing or a new field."""
    field = random.choice([*body, *body, "seed", "prompt", "user", "extra"])
    text = json.dumps(body | {field: _MARK}, ensure_ascii=False)
    return text.replace(f'"{_MARK}"', value).encode("utf-8", "surrogatepass")


def _break_json(random: Random, body: Json, corpus: Corpus) -> Request:
    """Truncates the JSON, flips bytes, repeats a part, or inserts invalid UTF-8."""
    whole = bytearray(_to_json(body))
    start, end = sorted(random.randrange(len(whole)) for _ in range(2))
    match random.randrange(4):
        case 0:
            del whole[start:]
        case 1:
            for _ in range(random.randint(1, 8)):
                whole[random.randrange(len(whole))] = random.randrange(256)
        case 2:
            whole[start:start] = whole[start:end] * random.randint(1, 50)
        case _:
            bad = random.choice((b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xf4\x90\x80\x80"))
            return _make_request(_insert(random, body, '"?"').replace(b'"?"', b'"' + bad + b'"'))
    return _make_request(bytes(whole))


def _wrong_type(random: Random, body: Json, corpus: Corpus) -> Request:
    changed = {name: value for name, value in body.items() if random.random() < 0.9}
    for field in random.sample([*body, "extra"], random.randint(0, min(3, len(body) + 1))):
        changed[field] = random.choice(corpus["others"])
    return _make_request(_to_json(changed) if changed else random.choice(corpus["no_objects"]).encode())


def _value(random: Random, body: Json, corpus: Corpus) -> Request:
    digits = "9" * random.choice((400, 4301, 100_000))
    numbers = [*corpus["numbers"], digits, "-" + digits, f"0.{digits}"]
    return _make_request(_insert(random, body, random.choice(random.choice((numbers, corpus["texts"])))))


def _nest(random: Random, body: Json, corpus: Corpus) -> Request:
    depth = random.choice((50, 999, 5000, 100_000))
    start, end = random.choice((("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")))
    return _make_request(_insert(random, body, start * depth + "1" + end * depth * random.choice((0, 1, 1))))


def _odd_type(random: Random, body: Json, corpus: Corpus) -> Request:
    """Changes the content type or the text's encoding, or compresses the body, some into a bomb."""
    if random.random() < 0.4:
        return _make_request(_to_json(body), (("Content-Type", random.choice(corpus["content_types"])),))
    if random.random() < 0.5:
        bomb = _to_json(body | {"prompt": "x" * random.choice((10, 50_000_000))})
        return _make_request(
            gzip.compress(bomb, 9, mtime=0), (*JSON, ("Content-Encoding", random.choice(("gzip", "deflate"))))
        )
    text = json.dumps(body | {"prompt": "日本語"}, ensure_ascii=False)
    return _make_request(text.encode(random.choice(corpus["encodings"]), "replace"))


def _framing(random: Random, body: Json, corpus: Corpus) -> Request:
    """Sends chunks, a wrong or missing length, or both, which a proxy and an app can read differently."""
    whole = _to_json(body)
    length = random.choice(corpus["lengths"]).format(size=len(whole), less=len(whole) - 1, more=len(whole) + 100)
    framing = random.choice(((_CHUNKED,), (("Content-Length", length),), (("Content-Length", length), _CHUNKED)))
    if _CHUNKED in framing:
        size = random.choice((1, 7, 1000, 2**20))
        parts = [whole[at : at + size] for at in range(0, min(len(whole), 20_000 * size), size)]
        whole = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))
    return _make_request(whole, framing=framing)


def _odd_header(random: Random, body: Json, corpus: Corpus) -> Request:
    name, value = (each.replace("{long}", "k" * 5000) for each in random.choice(corpus["headers"]))
    return _make_request(_to_json(body), (*JSON, (name, value)))


def _heavy(random: Random, body: Json, corpus: Corpus) -> Request:
    """Sends megabytes of keys, values or text."""
    piece = random.choice(("[],", "{},", "0,", '"",', "null,", '{"a":[]},', "[[[[]]]],", '"AAAA",'))
    text = random.choice(("x", "\\n", "\\ud83d\\ude00", "[", "é"))
    match random.randrange(3):
        case 0:
            keys = ",".join(f'"k{number}":0' for number in range(300_000))
            return _make_request(_to_json(body)[:-1] + b"," + keys.encode() + b"}")
        case 1:
            return _make_request(_insert(random, body, "[" + piece * (20 * _MB // len(piece)) + "0]"))
        case _:
            return _make_request(_insert(random, body, '"' + text * (5_000_000 // len(text)) + '"'))


_MUTATIONS: Final = (_break_json, _wrong_type, _value, _nest, _odd_type, _framing, _odd_header, _heavy)
KINDS: Final[Mapping[str, Mutation]] = {each.__name__.strip("_").replace("_", " "): each for each in _MUTATIONS}


# Images


@cache
def _honest(form: str) -> bytes:
    return encode_image(Image.effect_noise((64, 64), 90).convert("RGB"), form)


@cache
def _packed_zeros(megabytes: int) -> bytes:
    packer = zlib.compressobj(9)
    return b"".join([*(packer.compress(bytes(_MB)) for _ in range(megabytes)), packer.flush()])


def _scans(random: Random, corpus: Corpus) -> bytes:
    return repeated_scan(*random.choice(((4000, 3000), (2000, 1000), (512, 20_000), (64, 100_000))))


def _segments(random: Random, corpus: Corpus) -> bytes:
    """Inserts thousands of JPEG segments before the image, some with false metadata."""
    data = _honest("JPEG")
    marker, size = random.choice(((0xE1, 2), (0xE2, 60_000), (0xFE, 60_000), (0xDB, 67), (0xC4, 2), (0xED, 2)))
    entry = struct.pack(">HHII", 0x0112, 2, 2**32 - 1, 8)
    body = random.choice((b"ICC_PROFILE\0\1\xff", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + entry, b"\0" * 65))
    segment = bytes((0xFF, marker)) + struct.pack(">H", size) + body.ljust(size, b"\0")[: size - 2]
    return data[:2] + segment * (3 * _MB // len(segment)) + data[2:]


def _false_size(random: Random, corpus: Corpus) -> bytes:
    """Writes a false size, depth or number of components into the header."""
    width, height = random.choice(((30_000, 30_000), (0, 0), (1, 65_500), (4472, 4472), (2**31 - 1, 2**31 - 1)))
    if random.random() < 0.5:
        data = bytearray(_honest("JPEG"))
        at = data.index(b"\xff\xc0") + 4
        sides = min(height, 65_500), min(width, 65_500)
        data[at : at + 6] = struct.pack(">BHHB", random.choice((8, 12, 0)), *sides, random.choice((3, 1, 4, 0, 255)))
        return bytes(data)
    depth, colour = random.choice(((8, 2), (16, 6), (1, 0), (8, 3), (3, 2), (8, 7)))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, random.choice((0, 1, 2)))
    pixels = _packed_zeros(random.choice((1, 200)))
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", pixels) + png_chunk(b"IEND")


def _chunks(random: Random, corpus: Corpus) -> bytes:
    """Returns a file with a million empty chunks, compressed bombs of text or profiles, or endless frames."""
    packed = b"k\0\0" + _packed_zeros(random.choice((10, 400)))
    frames = png_chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0)) + png_chunk(b"fcTL", bytes(26)) * 50_000
    empty = png_chunk(random.choice((b"teSt", b"IDAT", b"tIME", b"PLTE", b"tRNS", b"tEXt", b"eXIf")))
    many = png_chunk(b"zTXt", b"k\0\0" + _packed_zeros(1)) * 500
    texts = [png_chunk(kind, packed) for kind in (b"zTXt", b"iCCP", b"iTXt")]
    webp = webp_with(random.choice((b"EXIF\0\0\0\0", b"ANMF\x10\0\0\0" + bytes(16))) * 300_000)
    return random.choice((webp, *map(png_with, (empty * 1000, empty * 1_000_000, many, frames, *texts))))


def _harm(random: Random, corpus: Corpus) -> bytes:
    """Returns a truncated, damaged or very large file, or another format, some of which call programs or read files."""
    data = bytearray(_honest(random.choice(("JPEG", "PNG", "WEBP"))))
    other = random.choice([*corpus["images"]]).encode("latin-1")
    forms = (_honest(form) for form in ("GIF", "BMP", "TIFF", "ICO", "PPM", "TGA", "JPEG2000"))
    large = encode_image(
        Image.new(random.choice(("RGBA", "1", "P", "L", "RGB")), (4472, 4472)), "PNG", compress_level=1
    )
    return random.choice((*forms, other, *_damage(random, data), large, bytes(data) + bytes(5 * _MB)))


def _damage(random: Random, data: bytearray) -> tuple[bytes, bytes]:
    cut = bytes(data[: random.randrange(len(data))])
    for _ in range(random.randint(1, 20)):
        data[random.randrange(len(data))] = random.randrange(256)
    return cut, bytes(data)


_KINDS: Final = (_scans, _segments, _false_size, _chunks, _harm)
IMAGES: Final[Mapping[str, Callable[[Random, Corpus], bytes]]] = {each.__name__.strip("_"): each for each in _KINDS}


# Videos

_BOXES: Final = b"ftyp moov mvhd trak tkhd mdia mdhd hdlr stbl stsd stsz stco stts stsc stss elst avcC mdat".split()
_ENDS: Final = (0, 1, 7, 2**31 - 1, 2**31, 2**32 - 1)


@cache
def _video(source: str = "testsrc=size=128x96:rate=24:duration=0.5", *output: str) -> bytes:
    return make_video(source, *output, audio=None if output else "sine=frequency=440:duration=0.5")


def _lies(random: Random, corpus: Corpus, port: int) -> bytes:
    """Overwrites sizes, counts and times in a box with extreme values."""
    data, box = bytearray(_video()), random.choice(_BOXES)
    at = max(4, data.find(box))
    for word in random.sample((-1, 1, 2, 3, 4, 5, 6), random.randint(1, 3)):
        data[at + 4 * word : at + 4 * word + 4] = struct.pack(">I", random.choice(_ENDS))
    return bytes(data)


def _boxes(random: Random, corpus: Corpus, port: int) -> bytes:
    """Adds thousands of nested boxes or a million empty ones before the video."""
    kind = random.choice(_BOXES)
    nested = b"".join(struct.pack(">I", 8 * (5000 - level)) + kind for level in range(5000))
    return random.choice((b"", _video())) + random.choice((nested, (b"\0\0\0\x08" + kind) * 1_000_000)) + _video()


def _disguise(random: Random, corpus: Corpus, port: int) -> bytes:
    """Returns a text format that makes ffmpeg open other files and URLs if it guesses the format."""
    text = random.choice(corpus["videos"]).replace("{target}", random.choice(corpus["video_targets"]))
    front = random.choice((b"", b"", b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom"))
    return front + text.replace("{port}", str(port)).encode("latin-1")


def _costly(random: Random, corpus: Corpus, port: int) -> bytes:
    """Returns a damaged file, or a small one that takes long to decode."""
    forms = ("4096x2160:rate=24:duration=4", "64x64:rate=1000:duration=10", "128x96:rate=24:duration=60")
    if random.random() < 0.5:
        return random.choice(_damage(random, bytearray(_video())))
    return _video(f"color=size={random.choice(forms)}", "-preset", "ultrafast")


VIDEOS: Final[Mapping[str, Callable[[Random, Corpus, int], bytes]]] = {
    each.__name__.strip("_"): each for each in (_lies, _boxes, _disguise, _costly)
}
