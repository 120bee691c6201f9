"""Generates and edits images with the package `openai` (`pip install openai`), by another address and key."""

import base64
import os
from pathlib import Path

from openai import OpenAI  # pyright: ignore[reportMissingImports]

client = OpenAI(
    base_url=os.environ.get("GEN_BASE_URL", "http://localhost:8000") + "/v1",
    api_key=os.environ["GEN_KEY"],
)

# Fields that OpenAI does not have go into `extra_body`.
generated = client.images.generate(
    model="gen-3-image-klein", prompt="a large white star on a black background", size="512x512", extra_body={"seed": 7}
)
Path("star.png").write_bytes(base64.b64decode(generated.data[0].b64_json))

with open("star.png", "rb") as star:
    edited = client.images.edit(model="gen-kontext-pro", image=star, prompt="make the star red")
Path("red.png").write_bytes(base64.b64decode(edited.data[0].b64_json))
