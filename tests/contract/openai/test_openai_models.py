"""`/v1/models`: the catalog as OpenAI's clients list it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from support.client import Client
from support.http_service import Service, StartService
from support.openai_calls import error

from serve_app.config import catalog
from serve_app.config.settings import ServiceSettings


def shown(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "gen-serve", "shutdown_date": None}


def test_every_endpoint_is_a_model(client: Client, service: Service) -> None:
    body = client.get("/v1/models").json()
    assert body == {"object": "list", "data": [shown(name) for name in catalog.load(service.settings).served]}


@pytest.mark.parametrize(
    ("named", "name"),
    [
        ("gen-2-max", "gen-2-max"),
        ("2-max", "gen-2-max"),
        ("gen-pro-1.1", "gen-pro"),
        ("gen-tools/erase-v1", "gen-tools/erase-v1"),
        ("gen-tools%2Ferase-v1", "gen-tools/erase-v1"),
    ],
)
def test_one_model(client: Client, named: str, name: str) -> None:
    assert client.get(f"/v1/models/{named}").json() == shown(name)


def test_a_model_that_there_is_not(client: Client) -> None:
    told = error(client.get("/v1/models/gpt-image-1"), 404)
    assert (told["param"], told["code"]) == ("model", "model_not_found")


def test_an_alias_of_the_family(start_service: StartService) -> None:
    service = start_service(service=ServiceSettings(path_aliases=["flux"]))
    with service.client() as client:
        assert client.get("/v1/models/flux-kontext-pro").json()["id"] == "gen-kontext-pro"


def test_a_model_that_is_going_or_is_elsewhere(start_service: StartService, repository: Any, tmp_path: Any) -> None:
    offered = yaml.safe_load((repository / "configs/catalog.yaml").read_text())
    offered["endpoints"]["gen-2-max"]["deprecated"] = {"since": "2026-01-01", "sunset": "2027-01-01"}
    offered["endpoints"]["gen-2-pro"]["regions"] = ["eu"]
    changed = tmp_path / "catalog.yaml"
    changed.write_text(yaml.safe_dump(offered))
    regions = {"us": "https://us.test", "eu": "https://eu.test"}
    service = start_service(catalog=changed, service=ServiceSettings(region="us", regions=regions))
    with service.client() as client:
        assert client.get("/v1/models/gen-2-max").json()["shutdown_date"] == "2027-01-01"
        assert "https://eu.test/v1/gen-2-pro" in error(client.get("/v1/models/gen-2-pro"), 404)["message"]
        assert "gen-2-pro" not in {model["id"] for model in client.get("/v1/models").json()["data"]}


def test_whoever_has_no_key_sees_none(service: Service) -> None:
    with Client(service.base_url, "", "") as nobody:
        error(nobody.get("/v1/models"), 401)
