from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from serve_app.load import mix
from serve_app.load.mix import Endpoint, Mix, Tenant
from serve_app.load.shape import Shape, Size


def written(folder: Path, text: str) -> Path:
    path = folder / "load.yaml"
    path.write_text(text)
    return path


def test_the_example_is_a_mix_and_what_it_comments_out_is_one_too(repository: Path, tmp_path: Path) -> None:
    text = (repository / "configs" / "load.yaml").read_text()
    assert {each.endpoint for each in mix.load(repository / "configs" / "load.yaml").endpoints} == {
        "gen-3-image-klein",
        "gen-kontext-pro",
    }
    opened = re.sub(r"^( *)# (?=tenants:|http:|- |  )", r"\1", text, flags=re.MULTILINE)
    whole = mix.load(written(tmp_path, opened))
    assert whole.http is not None
    assert whole.http.poll is not None
    assert [tenant.name for tenant in whole.tenants] == ["free", "paid"]
    assert whole.endpoints[-1].seconds == [5]


def test_endpoints_tenants_and_shapes_come_as_they_are_weighted() -> None:
    some = Mix(
        endpoints=[
            Endpoint(endpoint="often", weight=3, sizes=[Size(64, 64), Size(128, 64)], steps=[2, 4]),
            Endpoint(endpoint="seldom", seconds=[5]),
        ],
        tenants=[Tenant(name="loud", traffic=4), Tenant(name="quiet")],
    )
    requests = some.requests([0.1 * n for n in range(4000)], seed=1)
    endpoints = Counter(each.endpoint for each in requests)
    tenants = Counter(each.tenant for each in requests)
    assert endpoints["often"] / 4000 == pytest.approx(0.75, abs=0.03)
    assert tenants["loud"] / 4000 == pytest.approx(0.8, abs=0.03)
    assert {each.shape for each in requests} == {each.shape for each in some.one_of_each()}
    assert Shape(seconds=5) in {each.shape for each in requests}
    assert [each.moment for each in requests[:2]] == [0, 0.1]


def test_a_seed_means_one_load() -> None:
    some = Mix(endpoints=[Endpoint(endpoint="a", sizes=[Size(64, 64), Size(32, 32)])])
    moments = [0.0] * 20
    assert some.requests(moments, 4) == some.requests(moments, 4)
    assert some.requests(moments, 4) != some.requests(moments, 5)


def test_prompts_come_from_a_list_or_a_file_beside_the_mix(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("one\n\n two \n")
    found = mix.load(written(tmp_path, "prompts: prompts.txt\nendpoints: [{endpoint: a}]"))
    assert found.prompts == ["one", "two"]
    assert {each.prompt for each in found.requests([0.0] * 20)} == {"one", "two"}


def test_keys_come_from_where_they_are_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "paid.key").write_text("gen_paid\n")
    monkeypatch.setenv("FREE", "gen_free")
    tenants = "tenants: [{name: free, key_env: FREE}, {name: paid, key_file: paid.key}, {name: none}]"
    assert [tenant.key() for tenant in mix.load(written(tmp_path, tenants)).tenants] == ["gen_free", "gen_paid", None]


@pytest.mark.parametrize(
    ("tenant", "said"),
    [
        (Tenant(name="a", key_env="NOWHERE"), r"tenant a: the environment variable NOWHERE \(key_env\) is not set"),
        (Tenant(name="a", key_file=Path("/no/key")), "tenant a: key_file: No such file or directory: /no/key"),
    ],
)
def test_a_key_that_is_not_there_is_told(tenant: Tenant, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOWHERE", raising=False)
    with pytest.raises(ValueError, match=said):
        tenant.key()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "should hold endpoints"),
        ("[", "is no YAML"),
        ("endpoints: [{endpoint: a, sizes: [big]}]", r"endpoints.0.sizes.0: .*WIDTHxHEIGHT"),
        ("endpoints: [{endpoint: a, sizes: ['0x64']}]", r"endpoints.0.sizes.0: .*at least one pixel"),
        ("endpoints: [{endpoint: a, weight: 0}]", "endpoints.0.weight: Input should be greater than 0"),
        ("endpoints: [{endpoint: a, wait: 1}]", "endpoints.0.wait: Extra inputs are not permitted"),
        ("endpoints: [{weight: 1}]", "endpoints.0.endpoint: Field required"),
        ("tenants: [{name: a}, {name: a}]", "tenants should have different names"),
        ("tenants: []", "tenants should have at least one"),
        ("tenants: [{name: a, key_env: B, key_file: c}]", "key_env and key_file can't both be given"),
        ("prompts: []", "prompts should have at least one"),
        ("prompts: nowhere.txt", "prompts: No such file or directory: "),
        ("http: {path: /a, good: [999]}", r"http.good.0: .*less than or equal to 599"),
        ("http: {path: /a, poll: {url: u, status: s}}", "http.poll.done: Field required"),
    ],
)
def test_mistakes_are_named_by_their_field(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        mix.load(written(tmp_path, text))


def test_a_mix_without_endpoints_can_be_of_tenants_and_is_no_load() -> None:
    with pytest.raises(ValueError, match="endpoints: the mix has none"):
        Mix(tenants=[Tenant(name="a")]).requests([0.0])
