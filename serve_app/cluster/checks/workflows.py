"""Checks of ComfyUI workflows against the servers that run them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import httpx2

from deployments.contract.workflow import ObjectInfo, Workflow, WorkflowError
from deployments.proxies import proxy_for
from serve_app.cluster.checks.result import CheckResult
from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.schemas.workflow import WORKFLOW, bind

_WHAT: Final = "workflows"
_TIMEOUT_S: Final = 5.0


def fetch_object_info(url: str) -> ObjectInfo:
    """Returns the node classes of a ComfyUI server. Raises WorkflowError if it does not answer."""
    try:
        answer = httpx2.get(f"{url}/object_info", timeout=_TIMEOUT_S, trust_env=False, proxy=proxy_for(url))
        answer.raise_for_status()
        return ObjectInfo(answer.json())
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as problem:
        raise WorkflowError(f"{url} does not answer as ComfyUI does: {problem}") from None


def check_workflows(settings: Settings, catalog: Catalog) -> Iterator[CheckResult]:
    """Checks that each server at a fixed address has the nodes, ranges and options of the endpoints' inputs."""
    answers: dict[str, ObjectInfo | WorkflowError] = {}
    checked = 0
    for name, endpoint in catalog.endpoints.items():
        if endpoint.request != WORKFLOW:
            continue
        engine = catalog.models[endpoint.model].config(settings.model(endpoint.model)).engine
        assert engine is not None
        assert engine.workflow is not None
        workflow = Workflow.load(engine.workflow)
        for output in engine.outputs:
            try:
                workflow.find_node(output)
            except WorkflowError as problem:
                yield CheckResult.refused(_WHAT, f"models.{endpoint.model}.engine.output: {problem}", "name its nodes")
        for url in engine.urls:
            if url not in answers:
                try:
                    answers[url] = fetch_object_info(url)
                except WorkflowError as problem:
                    answers[url] = problem
                    yield CheckResult.warning(_WHAT, str(problem), "start it, or mend the url")
            if isinstance(answer := answers[url], WorkflowError):
                continue
            try:
                bind(workflow, endpoint.inputs, answer)
            except WorkflowError as problem:
                remedy = f"mend the inputs, or install what the workflow needs at {url}"
                yield CheckResult.refused(_WHAT, f"endpoints.{name}: {problem}", remedy)
            else:
                checked += 1
    if checked:
        yield CheckResult.fine(_WHAT, "their servers have the nodes, ranges and options of all inputs")
