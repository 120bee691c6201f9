"""Makes an image of each row of a CSV file (name, prompt, seed), several at a time. Safe to run again after a crash."""

import asyncio
import csv
import hashlib
import json
import os
import sys
from pathlib import Path

from gen_serve_client import AsyncClient, GenServeError

AT_A_TIME = 8
file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("prompts.csv")


async def make(client: AsyncClient, row: dict[str, str], turns: asyncio.Semaphore) -> bool:
    """Saves the row's image. False when it came to nothing."""
    body = {"prompt": row["prompt"], "seed": int(row["seed"]), "resolution": "1k"}
    # The same row has the same key for a day: sent again, it is the same task, paid once.
    key = hashlib.sha256(json.dumps([row["name"], body]).encode()).hexdigest()
    async with turns:
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
    turns = asyncio.Semaphore(AT_A_TIME)
    async with AsyncClient(os.environ.get("GEN_BASE_URL", "http://localhost:8000"), os.environ["GEN_KEY"]) as client:
        made = await asyncio.gather(*(make(client, row, turns) for row in rows))
    if not all(made):
        sys.exit(1)


asyncio.run(main())
