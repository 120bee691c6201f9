"""The command `gen-serve generate`: one request to any service of this API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from gen_serve_client import Result
from gen_serve_client.types import Submission

from serve_app.cli.fields import request_body
from serve_app.cli.output import (
    INTERRUPTED,
    Output,
    ask_to_cancel,
    check_writable,
    follow,
    save,
    say_warnings,
    show_json,
    show_result,
    with_format,
)
from serve_app.cli.service import BaseUrl, Client, Json, Key, connect


def generate(
    endpoint: Annotated[str, typer.Argument(help="An endpoint of gen-serve models, like gen-3-image-klein.")],
    fields: Annotated[
        list[str] | None,
        typer.Argument(
            help="name=value, name=@FILE for an image or video, name:=JSON for any value; repeat a name for a list.",
            show_default=False,
        ),
    ] = None,
    output: Output = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Print the id and exit; `tasks wait ID` fetches the result.")
    ] = False,
    as_json: Json = False,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Submit a request, wait for its result, save it, and print the file's name.

    Ctrl-C asks whether to cancel the task; a second one keeps it. Without a terminal, Ctrl-C cancels the task.

    \b
    gen-serve generate gen-3-image-klein prompt="a red star" -o star.png
    gen-serve generate gen-3-image-klein prompt="make the star blue" images=@star.png -o blue.png
    gen-serve generate gen-3-image-klein prompt="a red star" seed=7 --detach
    """
    endpoint = endpoint.removeprefix("/").removeprefix("v1/")
    if detach and output is not None:
        raise ValueError("--detach saves no file: give -o to gen-serve tasks wait instead")
    check_writable(output)
    with connect(base_url, key) as client:
        form = client.description().form(endpoint)
        body = with_format(request_body(fields or [], form), endpoint, form, output)
        if detach:
            submission = _submit(client, endpoint, body)
            show_json(submission) if as_json else print(submission["id"])
            return
        result, path = make(client, endpoint, body, output, wait=_follow_or_cancel)
    show_result(result, path, as_json=as_json)


def make(
    client: Client,
    endpoint: str,
    body: Mapping[str, Any],
    output: Path | None,
    wait: Callable[[Client, str], Result] = follow,
) -> tuple[Result, Path]:
    """Submits, waits and saves. Returns the result and the path of its file. Raises GenServeError."""
    result = wait(client, _submit(client, endpoint, body)["id"])
    return result, save(client, result, output)


def _submit(client: Client, endpoint: str, body: Mapping[str, Any]) -> Submission:
    submission = client.submit(endpoint, body)
    say_warnings(submission)
    return submission


def _follow_or_cancel(client: Client, task_id: str) -> Result:
    """Waits as `follow` does. Ctrl-C offers to cancel the task."""
    try:
        return follow(client, task_id)
    except KeyboardInterrupt:
        ask_to_cancel(client, task_id)
        raise typer.Exit(INTERRUPTED) from None
