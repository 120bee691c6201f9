"""Makes an image and edits it step by step: each prompt edits the last image."""

import base64
import os
import sys
from pathlib import Path

from gen_serve_client import Client

PROMPTS = [
    "a large red circle on the left on a white background",
    "make the circle blue",
    "change the background to a yellow background",
]

with Client(os.environ.get("GEN_BASE_URL", "http://localhost:8000"), os.environ["GEN_KEY"]) as client:
    image = b""
    for step, prompt in enumerate(sys.argv[1:] or PROMPTS):
        # PNG, since JPEG would lose quality at each step.
        body: dict[str, object] = {"prompt": prompt, "seed": 42, "output_format": "png"}
        if image:
            body["images"] = [base64.b64encode(image).decode()]
        else:
            body["resolution"] = "1k"
        result = client.wait(client.submit("gen-3-image-klein", body)["id"])
        image = result.content()
        Path(f"step-{step}.png").write_bytes(image)
        print(f"step-{step}.png", prompt)
