"""`/v1/models`: the catalog for OpenAI's clients."""

from __future__ import annotations

from typing import Any

import yaml
from support.http_client import Client
from support.http_service import StartService, replace_services
from support.images import image_file
from support.openai_client import error
from support.worker import QUEUE

from deployments.contract.counts import ReplicaCounts
from serve_app.accounts.roles import Role
from serve_app.api.model_status import ModelStatusReader
from serve_app.config import catalog
from serve_app.config.settings import ServiceSettings
from serve_app.tasks.task import Status


def model_entry(name: str) -> dict[str, Any]:
    entry = {"id": name, "object": "model", "created": 0, "owned_by": "gen-serve", "shutdown_date": None}
    return {**entry, "state": None, "demo": False, "predicted_wait_s": None}


def test_every_endpoint_is_listed_as_a_model(start_service: StartService) -> None:
    service = start_service()
    with service.client() as client:
        body = client.get("/v1/models").json()
    with Client(service.base_url, "", "") as nobody:
        error(nobody.get("/v1/models"), 401)
    assert body == {"object": "list", "data": [model_entry(name) for name in catalog.load(service.settings).served]}


def test_model_shows_its_state_and_predicted_wait(start_service: StartService) -> None:
    service = start_service()
    services = service.app.state.services

    async def replicas() -> dict[str, ReplicaCounts]:
        return {QUEUE: ReplicaCounts({"STARTING": 1}, target=1)}

    states = ModelStatusReader(services.tasks.store, services.tasks.windows, services.catalog.models, replicas)
    replace_services(service.app, "tasks", models=states)
    with service.client() as client, service.client(role=Role.OPERATOR) as operator:
        ready_id = client.create_task()
        service.worker.advance(ready_id, Status.GENERATING, progress=0.0)
        service.worker.deliver(ready_id, image_file(form="JPEG"))
        client.create_task()
        fleet = operator.get("/v1/admin/fleet").json()
        model = client.get("/v1/models/gen-3-image-klein").json()
        other = client.get("/v1/models/gen-2-max").json()
    [predicted] = [queue["predicted_wait_s"] for queue in fleet["models"] if queue["model"] == QUEUE]
    assert predicted is not None
    assert (model["state"], model["predicted_wait_s"]) == ("starting", predicted)
    assert (other["state"], other["predicted_wait_s"]) == (None, None)


def test_model_is_found_by_its_aliases(client: Client) -> None:
    names = {"2-max": "gen-2-max", "gen-pro-1.1": "gen-pro", "gen-tools%2Ferase-v1": "gen-tools/erase-v1"}
    for alias, name in (names | dict.fromkeys(["gen-2-max", "gen-tools/erase-v1"], None)).items():
        model = client.get(f"/v1/models/{alias}").json()
        assert (model["id"], model["object"]) == (name or alias, "model")
    model = error(client.get("/v1/models/gpt-image-1"), 404)
    assert (model["param"], model["code"]) == ("model", "model_not_found")


def test_model_shows_its_end_and_its_region(start_service: StartService, repository: Any, tmp_path: Any) -> None:
    openai_endpoints = yaml.safe_load((repository / "configs/catalog.yaml").read_text())
    openai_endpoints["endpoints"]["gen-2-max"]["deprecated"] = {"since": "2026-01-01", "sunset": "2027-01-01"}
    openai_endpoints["endpoints"]["gen-2-pro"]["regions"] = ["eu"]
    changed = tmp_path / "catalog.yaml"
    changed.write_text(yaml.safe_dump(openai_endpoints))
    regions = {"us": "https://us.test", "eu": "https://eu.test"}
    service = start_service(catalog=changed, service=ServiceSettings(region="us", regions=regions))
    with service.client() as client:
        assert client.get("/v1/models/gen-2-max").json()["shutdown_date"] == "2027-01-01"
        assert "https://eu.test/v1/gen-2-pro" in error(client.get("/v1/models/gen-2-pro"), 404)["message"]
        assert "gen-2-pro" not in {model["id"] for model in client.get("/v1/models").json()["data"]}
