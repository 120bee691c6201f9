"""Uploads a LoRA adapter (safetensors), makes an image with it and deletes it.

python upload_lora.py my_adapter.safetensors
"""

import os
import sys
from pathlib import Path

from gen_serve_client import Client

BUNDLED = Path(__file__).parents[1] / "deployments/bundled/adapters/outlined.safetensors"  # draws outlines only
file = Path(sys.argv[1]) if len(sys.argv) > 1 else BUNDLED

with Client(os.environ.get("GEN_BASE_URL", "http://localhost:8000"), os.environ["GEN_KEY"]) as client:
    # The service checks it against the layers of the endpoint's model. Only your project can use it.
    adapter = client.upload_finetune(file, base="gen-3-image-klein", name=file.stem)
    try:
        result = client.generate(
            "gen-3-image-klein-finetuned",
            prompt="a large red star",
            finetune_id=adapter["finetune_id"],
            finetune_strength=1.0,
            resolution="1k",
        )
        result.save("outlined.jpeg")
        print("outlined.jpeg")
    finally:
        client.delete_finetune(adapter["finetune_id"])
