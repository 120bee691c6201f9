"""`gen-serve generate`: one request, to any service that speaks this dialect."""

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
    check_place,
    follow,
    save,
    say_result,
    say_warnings,
    show_json,
    with_format,
)
from serve_app.cli.service import BaseUrl, Client, Json, Key, connect


def generate(
    endpoint: Annotated[str, typer.Argument(help="As `gen-serve models` lists them, e.g. gen-3-image-klein.")],
    fields: Annotated[
        list[str] | None,
        typer.Argument(
            help="name=value, name=@FILE for an image or video, name:=JSON for any value; repeat a name for a list.",
            show_default=False,
        ),
    ] = None,
    output: Output = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Print the id and leave; `tasks wait ID` fetches it.")
    ] = False,
    as_json: Json = False,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Submit a request, wait for its result, save it, print the file's name.

    Ctrl-C offers to cancel the task; a second one leaves it as it is. Where nobody can answer, Ctrl-C cancels.

    \b
    gen-serve generate gen-3-image-klein prompt="a red star" -o star.png
    gen-serve generate gen-3-image-klein prompt="make the star blue" images=@star.png -o blue.png
    gen-serve generate gen-3-image-klein prompt="a red star" seed=7 --detach
    """
    endpoint = endpoint.removeprefix("/").removeprefix("v1/")
    if detach and output is not None:
        raise ValueError("with --detach nothing is saved: leave out -o, and give it to gen-serve tasks wait")
    check_place(output)
    with connect(base_url, key) as client:
        form = client.description().form(endpoint)
        body = with_format(request_body(fields or [], form), endpoint, form, output)
        if detach:
            submission = _submit(client, endpoint, body)
            show_json(submission) if as_json else print(submission["id"])
            return
        result, path = make(client, endpoint, body, output, following=_follow_or_cancel)
    if as_json:
        show_json({**result.task, "file": str(path)})
    else:
        print(path)
        say_result(result)


def make(
    client: Client,
    endpoint: str,
    body: Mapping[str, Any],
    output: Path | None,
    following: Callable[[Client, str], Result] = follow,
) -> tuple[Result, Path]:
    """Submits, waits, saves. Returns what was made and where its file is. Raises GenServeError when that is nothing."""
    result = following(client, _submit(client, endpoint, body)["id"])
    return result, save(result, output)


def _submit(client: Client, endpoint: str, body: Mapping[str, Any]) -> Submission:
    """The answer, with its warnings said at once."""
    submission = client.submit(endpoint, body)
    say_warnings(submission)
    return submission


def _follow_or_cancel(client: Client, task_id: str) -> Result:
    """What the task made, for someone who may change their mind."""
    try:
        return follow(client, task_id)
    except KeyboardInterrupt:
        ask_to_cancel(client, task_id)
        raise typer.Exit(INTERRUPTED) from None
