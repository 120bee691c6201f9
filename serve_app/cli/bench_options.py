"""Options that several commands of `gen-serve bench` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MixFile = Annotated[
    Path | None,
    typer.Option("--mix", help="YAML file of what is sent, like configs/load.yaml.", show_default=False),
]
Endpoint = Annotated[
    str | None, typer.Option(help="In place of a mix: one endpoint, or model, for all requests.", show_default=False)
]
Size = Annotated[
    str | None, typer.Option(help="With --endpoint: WIDTHxHEIGHT; else the server chooses.", show_default=False)
]
Steps = Annotated[
    int | None, typer.Option(min=1, help="With --endpoint: steps; else the server chooses.", show_default=False)
]
Adapter = Annotated[
    str,
    typer.Option(
        help="How the server is spoken to: gen (this interface), openai (/v1/images/generations), "
        "http (as the mix says under http)."
    ),
]
Arrivals = Annotated[str, typer.Option(help="How requests come: poisson, constant, bursts, diurnal.")]
Peak = Annotated[
    float | None,
    typer.Option(
        help="Of bursts and diurnal arrivals: how many times the mean rate; else 4 and 1.8.", show_default=False
    ),
]
Period = Annotated[float, typer.Option(help="Of bursts and diurnal arrivals: seconds from one peak to the next.")]
Duration = Annotated[float, typer.Option(min=0.1, help="Seconds of arrivals that count.")]
WarmUp = Annotated[float, typer.Option(min=0, help="Seconds of arrivals before them, which are left out.")]
Seed = Annotated[int, typer.Option(help="Of arrivals, of what is drawn from the mix, and of prompts.")]
Slo = Annotated[
    str | None,
    typer.Option(
        help="Objective: seconds until the result, like 5, or a multiple of what a request alone takes, like 3x, "
        "which is measured first.",
        show_default=False,
    ),
]
Limit = Annotated[float, typer.Option(min=0.1, help="Seconds after which an accepted task counts as lost.")]
PollEvery = Annotated[float, typer.Option(min=0.005, help="Seconds between two polls of a task.")]
Wait = Annotated[
    float, typer.Option(min=0, max=60, help="Let polls wait at the server for so long, where it knows ?wait=.")
]
Processes = Annotated[int, typer.Option(min=1, help="Generator processes that share the requests.")]
Finetune = Annotated[
    str | None,
    typer.Option(
        help="Id of a tuned model for the requests of a trace that had one; else without.", show_default=False
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Folder for the report; else load-DATE-TIME here.", show_default=False),
]
