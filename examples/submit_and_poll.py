"""Submits a task, polls until it ends and saves the image."""

import os
import sys
import time
from pathlib import Path

from gen_serve_client import Client

RUNNING = {"Pending", "Reasoning", "Generating"}
prompt = sys.argv[1] if len(sys.argv) > 1 else "a red square on a white background"

with Client(os.environ.get("GEN_BASE_URL", "http://localhost:8000"), os.environ["GEN_KEY"]) as client:
    task_id = client.submit("gen-3-image-klein", {"prompt": prompt, "resolution": "1k", "seed": 7})["id"]

    # A poll returns when the task ends, or after 5 seconds. `client.wait(task_id)` does this whole loop.
    while (task := client.poll(task_id, wait=5))["status"] in RUNNING:
        print(task["status"], task.get("progress"))
        time.sleep(0.5)

    if task["status"] != "Ready":
        sys.exit(f"{task['status']}: {task.get('details')}")

    # The link works for ten minutes: keep the file, not the link.
    Path("image.jpeg").write_bytes(client.fetch((task.get("result") or {})["sample"]))
    print("image.jpeg", task.get("cost"), "credits")
