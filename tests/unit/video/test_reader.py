from __future__ import annotations

import gc
import struct
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import psutil
import pytest
from support.video_encoding import make_video as encode_video
from support.video_encoding import remux

from deployments.video import reader
from deployments.video.reader import Frames, VideoInfo, audio, frames, last_frames, probe
from deployments.video.writer import Audio, VideoFileError, VideoWriter, command

make_video = cache(encode_video)
SIZE = (48, 32)
TURNED = ("-display_rotation", "90")


@pytest.fixture(autouse=True)
def _assert_no_processes() -> Iterator[None]:
    before = set(psutil.Process().children())
    yield
    assert set(psutil.Process().children()) == before


@pytest.fixture
def store_file(tmp_path: Path) -> Callable[[bytes], Path]:
    def _store(data: bytes) -> Path:
        file = tmp_path / "given video.mp4"
        file.write_bytes(data)
        return file

    return _store


def read_frames(file: Path, size: tuple[int, int] = SIZE, **more: int) -> Frames:
    return np.concatenate(list(frames(file, size, **more)))


def colour(image: np.ndarray) -> list[int]:
    return [round(float(value)) for value in image.reshape(-1, 3).mean(0)]


def pitch(samples: np.ndarray, rate: int) -> float:
    return float(np.fft.rfftfreq(len(samples), 1 / rate)[np.abs(np.fft.rfft(samples)).argmax()])


FRAGMENTS = ("-movflags", "frag_keyframe+empty_moov", "-g", "12", "-bf", "0")
SOURCES: dict[str, Callable[[], tuple[bytes, VideoInfo]]] = {
    "slow": lambda: (make_video("testsrc=s=64x64:d=2:r=10"), VideoInfo(64, 64, 48, False)),
    "uneven": lambda: (
        make_video("testsrc=s=64x64:d=3:r=30,select='not(mod(n,7))+gt(n,60)'", "-fps_mode", "vfr"),
        VideoInfo(64, 64, 72, False),
    ),
    "turned": lambda: (remux(make_video("testsrc=s=96x64:d=1:r=24"), reading=TURNED), VideoInfo(64, 96, 24, False)),
    "wide pixels": lambda: (make_video("testsrc=s=64x64:d=1:r=24,setsar=2"), VideoInfo(128, 64, 24, False)),
    "with sound": lambda: (make_video("testsrc=s=64x64:d=1:r=24", audio="sine=d=1"), VideoInfo(64, 64, 24, True)),
    "in fragments": lambda: (
        make_video("testsrc=s=64x64:d=2:r=24", *FRAGMENTS, audio="sine=d=2"),
        VideoInfo(64, 64, 48, True),
    ),
    "of another size in the middle": lambda: (
        remux(
            make_video("testsrc=s=64x64:d=1:r=24", ending="h264")
            + make_video("testsrc=s=96x64:d=1:r=24", ending="h264"),
            reading=("-r", "24", "-f", "h264"),
        ),
        VideoInfo(64, 64, 44, False),  # the last frame of the first size is repeated
    ),
    "as quicktime": lambda: (
        make_video("testsrc=s=64x64:d=1:r=24", "-c:v", "prores", "-pix_fmt", "yuv422p10le", ending="mov"),
        VideoInfo(64, 64, 24, False),
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_probe_counts_the_decoded_frames(name: str, store_file: Callable[[bytes], Path]) -> None:
    data, expected = SOURCES[name]()
    file = store_file(data)
    info = probe(file)
    assert (info.width, info.height, info.has_audio) == (expected.width, expected.height, expected.has_audio)
    assert abs(info.frames - expected.frames) <= 1  # rounded to another frame rate
    assert info.seconds == info.frames / 24
    all_frames = read_frames(file)
    assert all_frames.shape == (info.frames, 32, 48, 3)
    assert np.array_equal(last_frames(file, SIZE, 9), all_frames[-9:])
    assert (audio(file) is not None) is info.has_audio
    assert np.ptp(all_frames) > 100


def test_frames_come_in_writable_chunks(store_file: Callable[[bytes], Path]) -> None:
    file = store_file(make_video("testsrc=s=64x64:d=1:r=24"))
    pieces = list(frames(file, SIZE, chunk=5))
    assert [len(piece) for piece in pieces] == [5, 5, 5, 5, 4]
    assert all(piece.flags.writeable and piece.flags.c_contiguous for piece in pieces)
    assert np.array_equal(np.concatenate(pieces), read_frames(file))
    assert len(read_frames(file, fps=8)) == 8


STRIPES = "color=blue:s=192x64:d=0.2:r=24,drawbox=c=red:t=fill:w=64,drawbox=c=lime:t=fill:x=64:w=64"


def test_wide_video_is_cropped_on_both_sides(store_file: Callable[[bytes], Path]) -> None:
    [first, *_] = read_frames(store_file(make_video(STRIPES)), (64, 64))
    assert colour(first[:, 8:-8]) == pytest.approx([0, 255, 0], abs=25)


def test_rotated_video_is_upright(store_file: Callable[[bytes], Path]) -> None:
    [first, *_] = read_frames(store_file(remux(make_video(STRIPES), reading=TURNED)), (32, 96))
    assert colour(first[4:28]) == pytest.approx([0, 0, 255], abs=25)
    assert colour(first[68:92]) == pytest.approx([255, 0, 0], abs=25)


@pytest.mark.parametrize("sar", ["64", "1/64"])
def test_extreme_pixel_aspect_ratio(sar: str, store_file: Callable[[bytes], Path]) -> None:
    file = store_file(make_video(f"testsrc=s=64x64:d=0.1:r=24,setsar={sar}"))
    assert {probe(file).width, probe(file).height} == ({4096, 64} if sar == "64" else {1, 64})
    assert read_frames(file, (128, 70)).shape[1:] == (70, 128, 3)


def test_written_video_is_read_back(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 48).astype(np.uint8)
    images = np.broadcast_to(ramp[:, None, None, None], (48, 64, 96, 3))
    moments = np.arange(48_000) / 24_000
    wave = (0.5 * np.sin(2 * np.pi * (200 + 300 * moments) * moments)).astype(np.float32)
    video = VideoWriter(tmp_path / "video.mp4", rendered=(96, 64), size=(96, 64), frames=48, audio=Audio(wave, 24_000))
    video.write(images)
    video.close()
    assert probe(tmp_path / "video.mp4") == VideoInfo(96, 64, 48, True)
    assert np.abs(read_frames(tmp_path / "video.mp4", (96, 64)).mean((1, 2, 3)) - ramp).max() < 3
    read = audio(tmp_path / "video.mp4", 24_000)
    assert read is not None
    assert read.seconds == pytest.approx(2.0, abs=1 / 24)
    difference = read.fit(2.0).samples[0] - wave
    assert np.std(difference[1000:-1000]) < 0.05  # a shifted wave would differ more


@pytest.mark.parametrize("channels", [1, 2])
def test_audio_keeps_its_loudness(channels: int, store_file: Callable[[bytes], Path]) -> None:
    rate = 24_000
    tone = f"aevalsrc='{'|'.join(['0.5*sin(2*PI*440*t)'] * channels)}':s=44100:d=1"
    read = audio(store_file(make_video("testsrc=s=64x64:d=1:r=24", audio=tone)), rate)
    assert read is not None
    assert read.rate == rate
    assert read.seconds == pytest.approx(1.0, abs=1 / 24)
    for channel in read.samples:
        assert pitch(channel[:rate], rate) == pytest.approx(440, abs=2)
        assert np.std(channel[rate // 4 : rate // 2]) == pytest.approx(0.5 / np.sqrt(2), abs=0.02)


@pytest.mark.parametrize(("late", "frame_count", "silent"), [("v", 36, 0.0), ("a", 24, 0.5)])
def test_stream_offsets_are_kept(
    late: str, frame_count: int, silent: float, store_file: Callable[[bytes], Path]
) -> None:
    both = make_video("testsrc=s=64x64:d=1:r=24", audio="sine=d=1")
    source = store_file(both)
    # The second input is the same file half a second later; one stream comes from each.
    order = ("-map", "1:v", "-map", "0:a") if late == "a" else ("-map", "0:v", "-map", "1:a")
    file = store_file(remux(both, *order, reading=("-itsoffset", "0.5", "-i", str(source))))
    assert probe(file).frames == frame_count
    track = audio(file)
    assert track is not None
    onset = np.flatnonzero(np.abs(track.samples[0]) > 0.05)[0] / track.rate
    assert onset == pytest.approx(silent, abs=0.03)


def make_long_video(seconds: int) -> bytes:
    """Returns a small file whose last frame lasts for `seconds`."""
    late = f"setpts='if(eq(N,1),{seconds}/TB,PTS)'"
    return make_video(f"testsrc=s=64x64:r=24:d=0.1,{late}", "-fps_mode", "vfr")


def test_declared_length_is_limited(store_file: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    file = store_file(make_long_video(100_000))
    assert probe(file, max_s=2.0).frames == 2 * 24 + 1
    monkeypatch.setattr(reader, "MAX_VIDEO_S", 1.0)
    assert len(read_frames(file)) == 24
    endless = audio(store_file(make_video("testsrc=s=64x64:d=0.2:r=24", audio="sine=d=5")))
    assert endless is not None
    assert endless.seconds == 1.0


def test_probe_time_is_limited(store_file: Callable[[bytes], Path]) -> None:
    with pytest.raises(VideoFileError, match="can't be read in 0 s"):
        probe(store_file(make_video("testsrc=s=64x64:d=0.2:r=24")), timeout_s=0.0)


def test_cpu_time_of_decoding_is_limited(store_file: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_CPU_SECONDS", 1)
    monkeypatch.setattr(reader, "MAX_VIDEO_S", 1e5)
    with pytest.raises(VideoFileError, match=r"to its end|within a frame"):  # noqa: PT012
        for piece in frames(store_file(make_long_video(100_000)), (256, 256), chunk=100):
            assert len(piece)


def hdr(tmp_path: Path, transfer: str, colour: str) -> Path:
    """Makes a second of one colour in BT.2020 with the given transfer function."""
    file = tmp_path / f"{transfer}.mp4"
    source = f"color=c={colour}:s=64x64:r=24:d=1,scale=out_color_matrix=bt2020,format=yuv420p10le"
    tags = f"log-level=0:colorprim=bt2020:transfer={transfer}:colormatrix=bt2020nc"
    codec = ["-c:v", "libx265", "-preset", "ultrafast", "-tag:v", "hvc1", "-x265-params", tags]
    subprocess.run(command("-f", "lavfi", "-i", source, *codec, str(file)), check=True, capture_output=True)
    return file


@pytest.mark.parametrize(("transfer", "white"), [("arib-std-b67", "0xBFBFBF"), ("smpte2084", "0x949494")])
def test_hdr_is_converted_to_sdr(tmp_path: Path, transfer: str, white: str) -> None:
    """White of 203 candelas becomes nearly white; without the conversion it would be grey."""
    assert min(colour(read_frames(hdr(tmp_path, transfer, white), (64, 64))[0][0])) > 200
    red, green, blue = colour(read_frames(hdr(tmp_path, transfer, "0x904040"), (64, 64))[0][0])
    assert red - max(green, blue) > 100, "a wide-gamut colour must be stronger in the narrow gamut"


def test_dropped_iterator_ends_its_process(store_file: Callable[[bytes], Path]) -> None:
    before = psutil.Process().children()
    file = store_file(make_video("testsrc=s=640x480:d=2:r=24"))
    iterator = frames(file, (640, 480), chunk=1)
    next(iterator)
    assert len(psutil.Process().children()) == len(before) + 1
    del iterator
    gc.collect()
    assert psutil.Process().children() == before


def good(index_first: bool = True) -> bytes:
    return make_video("testsrc=s=320x240:d=3:r=10", *(("-movflags", "+faststart") if index_first else ()))


def spoilt() -> bytes:
    half = len(good()) // 2
    return good()[:half] + bytes(200) + good()[half + 200 :]


def with_sample_count(video: bytes, count: int) -> bytes:
    """Sets the file's number of frames, all of one size."""
    place = video.index(b"stsz") + 4
    return video[: place + 4] + struct.pack(">II", 1, count) + video[place + 12 :]


REASONS = {
    "text": "no mp4 file, or its index is missing",
    "a rare codec": "cinepak are not supported",
    "huge frames": "5000x4000 pixels is too large",
}
HOSTILE: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "text": lambda: b"no video at all",
    "a playlist": lambda: b"#EXTM3U\n#EXTINF:1,\nfile:///etc/hostname\n",
    "without its end": lambda: good()[:-100],
    "without its index": lambda: good(index_first=False)[: len(good()) * 2 // 3],
    "spoilt": spoilt,
    "another container": lambda: make_video("testsrc=s=64x64:d=0.2:r=24", ending="mkv"),
    "sound only": lambda: make_video("testsrc=s=64x64:d=0.2:r=24", "-map", "1:a", audio="sine=d=1"),
    "a rare codec": lambda: make_video(
        "testsrc=s=64x64:d=0.2:r=24", "-c:v", "cinepak", "-pix_fmt", "rgb24", ending="mov"
    ),
    "huge frames": lambda: make_video("testsrc=s=5000x4000:d=0.05:r=24", "-preset", "ultrafast"),
    "a huge table": lambda: with_sample_count(good(), 2**31 - 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_unreadable_file_is_a_video_error(name: str, store_file: Callable[[bytes], Path]) -> None:
    file = store_file(HOSTILE[name]())
    for look in (lambda: probe(file), lambda: read_frames(file), lambda: last_frames(file, SIZE, 3)):
        with pytest.raises(VideoFileError) as failure:
            look()
        message = str(failure.value)
        assert not [leak for leak in (file.name, str(file.parent), "@ 0x", "\n") if leak in message]
    with pytest.raises(VideoFileError, match=f"{REASONS.get(name, '')}$"):
        probe(file)


def test_missing_file_is_a_video_error(tmp_path: Path) -> None:
    for look in (lambda: probe(tmp_path / "none.mp4"), lambda: audio(tmp_path / "none.mp4")):
        with pytest.raises(VideoFileError, match="No such file") as failure:
            look()
        assert str(tmp_path) not in str(failure.value)
