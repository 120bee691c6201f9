"""Makes a video that begins with an image: your own, or a generated one.

python video_from_image.py photo.jpeg "waves roll onto the beach"
"""

import base64
import os
import sys
from pathlib import Path

from gen_serve_client import Client
from gen_serve_client.types import TaskResult


def show(task: TaskResult) -> None:
    print(f"\r{task['status']} {100 * (task.get('progress') or 0):3.0f} %", end="", flush=True)


with Client(os.environ.get("GEN_BASE_URL", "http://localhost:8000"), os.environ["GEN_KEY"]) as client:
    if len(sys.argv) > 2:
        image, prompt = Path(sys.argv[1]).read_bytes(), sys.argv[2]
    else:
        first = client.generate("gen-3-image-klein", prompt="a red circle on the left on a dark blue background")
        image, prompt = first.content(), "a red circle moves to the right"

    # Several keyframes are spread over the video; pairs of [seconds, image] name their times.
    video = client.generate(
        "gen-3-video",
        mode="i2v",
        prompt=prompt,
        keyframes=base64.b64encode(image).decode(),
        duration=5,
        generate_audio=False,
        progress=show,
    )
    video.save("video.mp4")
    print("\nvideo.mp4", video.cost, "credits")
