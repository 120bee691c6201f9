"""Makes an image for each row of a CSV file (name, prompt, seed), several at a time. Safe to rerun after a crash."""

import asyncio
import csv
import hashlib
import json
import os
import sys
from pathlib import Path

from gen_serve_client import AsyncClient, GenServeError

CONCURRENCY = 8
file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("prompts.csv")


async def make(client: AsyncClient, row: dict[str, str], slots: asyncio.Semaphore) -> bool:
    """Saves the row's image. Returns whether that worked."""
    body = {"prompt": row["prompt"], "seed": int(row["seed"]), "resolution": "1k"}
    # For a day the same key returns the same task, which is paid once.
    key = hashlib.sha256(json.dumps([row["name"], body]).encode()).hexdigest()
    async with slots:
        try:
            submission = await client.submit("gen-3-image-klein", body, idempotency_key=key)
            result = await client.wait(submission["id"])
            await result.save(f"{row['name']}.jpeg")
        except GenServeError as problem:
            print(f"{row['name']}: {problem}", file=sys.stderr)
            return False
    print(f"{row['name']}.jpeg")
    return True


async def main() -> None:
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    slots = asyncio.Semaphore(CONCURRENCY)
    async with AsyncClient(os.environ.get("GEN_BASE_URL", "http://localhost:8000"), os.environ["GEN_KEY"]) as client:
        succeeded = await asyncio.gather(*(make(client, row, slots) for row in rows))
    if not all(succeeded):
        sys.exit(1)


asyncio.run(main())
