"""Calls of the Python client for the type checker of `make check`. Nothing runs them."""

# pyright: reportUnnecessaryTypeIgnoreComment=error

from __future__ import annotations

from typing import assert_type

from gen_serve_client import AsyncClient, AsyncResult, Client, Result
from gen_serve_client.types import DraftEnhanceRequest, ImageKleinRequest


def call_all(client: Client) -> None:
    assert_type(client.generate("gen-3-image-klein", prompt="a red star", seed=7, output_format="png"), Result)
    client.generate("gen-3-image-klein", prompt="a red star", timeout_s=60, progress=lambda task: print(task["status"]))
    client.generate("gen-3-video", mode="t2v", prompt="a red star", duration=5)
    client.generate("gen-3-video", mode="draft_enhance", draft_cache="…")
    client.generate("gen-tools/erase-v1", image="…", mask="…")
    body: ImageKleinRequest = {"prompt": "a red star"}
    client.submit("gen-3-image-klein", body)
    client.submit("flux-3-image-klein", {"prompt": "a red star"})


async def call_all_with_asyncio(client: AsyncClient) -> None:
    assert_type(await client.generate("gen-3-image-klein", prompt="a red star"), AsyncResult)


def call_wrongly(client: Client) -> None:
    client.generate("gen-3-image-klein", promt="a red star")  # pyright: ignore
    client.generate("gen-3-image-klein", prompt="a red star", seed="7")  # pyright: ignore
    client.generate("gen-3-image-klein")  # pyright: ignore
    client.generate("gen-3-image-klien", prompt="a red star")  # pyright: ignore
    client.generate("gen-3-video", mode="t2v", draft_cache="…")  # pyright: ignore
    _: DraftEnhanceRequest = {"mode": "draft_enhance"}  # pyright: ignore
