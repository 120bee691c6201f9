"""Who may do what to whom: every route, by every role, on what is theirs, their neighbours' and strangers'.

The table is what the interface and `docs/accounts.md` say, not what the code does. What belongs to others looks as if
it were not there, and nothing of it stands in any answer.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final
from urllib.parse import quote

from attack import verdict
from attack.attacks import Play
from attack.mutations import JSON
from attack.stage import OPERATOR, ROLES, Stage, Tenant
from attack.wire import Request

_A, _D, _B, _V = ROLES
_ALL: Final = frozenset(ROLES)
_WORK: Final = frozenset({_A, _D})
_MONEY: Final = frozenset({_A, _B, _V})
_ADMIN: Final = frozenset({_A})
_LIMITS: Final = frozenset({_A, _B})
_NOBODY: Final[frozenset[str]] = frozenset()
"""Of an organization's roles: an operator may do it."""
_WITHIN_S: Final = 90.0
"""The check of a tuned model is a process of its own, which has to start."""
_STRANGERS: Final = {"no key": "", "made-up key": "gen_" + "A" * 43, "key with a tail": "{key}x", "empty role": "gen_"}
OWN, NEIGHBOUR, FOREIGN = "own", "neighbour", "foreign"


@dataclass(frozen=True, slots=True)
class Route:
    """`where` names what the braces of the path, the query and the body are filled with.

    A neighbour is another project of the same organization; what only a key's own project may see is `hidden` from
    its neighbours. `endured` are answers to those who may, apart from success.
    """

    method: str
    path: str
    roles: frozenset[str]
    body: Mapping[str, Any] | None = None
    endured: frozenset[int] = frozenset()
    hidden: bool = False
    own_project: frozenset[str] = frozenset()
    """Roles that may do it in their own project only."""


_ORGANIZATION: Final = "organization={organization}"
TABLE: Final = (
    Route("POST", "/v1/gen-3-image-klein", _WORK, {"prompt": "x", "width": 64, "height": 64}),
    Route("POST", "/v1/gen-2-max", _WORK, {"prompt": "x", "width": 64, "height": 64}),
    Route("POST", "/v1/gen-3-image-klein-finetuned", _WORK, {"prompt": "x", "finetune_id": "none"}, frozenset({400})),
    Route("POST", "/v1/gen-3-video", _WORK, {"mode": "draft_enhance", "draft_cache": "{task}"}, frozenset({422})),
    Route("GET", "/v1/tasks", _ALL),
    Route("DELETE", "/v1/tasks/{task}", _WORK, hidden=True),
    Route("GET", "/v1/tasks/{task}/deliveries", _ALL, hidden=True),
    Route("POST", "/v1/tasks/{task}/deliveries/replay", _WORK, endured=frozenset({409}), hidden=True),
    Route("POST", "/v1/tasks/{task}/links", _ALL, {"expires_in": 60}, frozenset({409}), hidden=True),
    Route("POST", "/v1/finetunes?name=x&base=gen-3-image-klein", _WORK, {}, frozenset({422, 429, 503})),
    Route("GET", "/v1/my_finetunes", _ALL),
    Route("GET", "/v1/finetune_details?finetune_id=none", _ALL, endured=frozenset({404})),
    Route("POST", "/v1/delete_finetune", _WORK, {"finetune_id": "none"}, frozenset({404})),
    Route("POST", "/v1/licenses/models/flux-1-dev/usage", _WORK, {"number_of_generations": 1}, frozenset({400, 403})),
    Route("POST", "/v1/images/generations", _WORK, {"prompt": ""}, frozenset({400})),
    Route("POST", "/v1/images/edits", _WORK, {"prompt": ""}, frozenset({400})),
    Route("POST", "/v1/videos", _WORK, {"prompt": ""}, frozenset({400})),
    Route("GET", "/v1/videos", _ALL),
    Route("GET", "/v1/videos/none", _ALL, endured=frozenset({404})),
    Route("GET", "/v1/videos/none/content", _ALL, endured=frozenset({404})),
    Route("DELETE", "/v1/videos/none", _WORK, endured=frozenset({404})),
    Route("GET", "/v1/models", _ALL),
    Route("GET", "/v1/models/gen-pro", _ALL),
    Route("GET", "/v1/authorizations", _ALL),
    Route("DELETE", "/v1/authorizations/none", _ALL, endured=frozenset({404})),
    Route("POST", "/v1/invitations", _ADMIN, {"role": "viewer"}),
    Route("GET", "/v1/admin/fleet", _NOBODY),
    Route("DELETE", "/v1/admin/people/none", _NOBODY, endured=frozenset({404})),
    Route("GET", "/v1/credits", _ALL),
    Route("POST", "/v1/pricing", _ALL, {"path": "/v1/gen-2-max", "body": {"prompt": "x"}}),
    Route("GET", f"/v1/usage?{_ORGANIZATION}", _MONEY),
    Route("GET", f"/v1/usage?format=csv&{_ORGANIZATION}", _MONEY),
    Route("GET", f"/v1/admin/credits?{_ORGANIZATION}", _MONEY),
    Route("GET", f"/v1/admin/ledger?{_ORGANIZATION}", _MONEY),
    Route("POST", f"/v1/admin/credits/grants?{_ORGANIZATION}", _NOBODY, {"id": "{new}", "credits": 1}),
    Route("GET", "/v1/admin/organizations", _NOBODY),
    Route("POST", "/v1/admin/organizations", _NOBODY, {"id": "{new}"}),
    Route("GET", "/v1/admin/organizations/{organization}", _ALL),
    Route("PUT", "/v1/admin/organizations/{organization}/safety/gen-2-max", _NOBODY, {"tolerance": 5}),
    Route("PUT", "/v1/admin/organizations/{organization}/ceilings/violence", _NOBODY, {"tolerance": 5}),
    Route("GET", f"/v1/admin/projects?{_ORGANIZATION}", _ALL),
    Route("POST", f"/v1/admin/projects?{_ORGANIZATION}", _ADMIN, {"id": "{new}"}),
    Route("GET", "/v1/admin/projects/{project}", _ALL),
    Route("PATCH", "/v1/admin/projects/{project}", _LIMITS, {"limit_day": 100_000}),
    Route("PATCH", "/v1/admin/projects/{project}", _LIMITS, {"limit_week": 100_000, "limit_month": None}),
    Route("PATCH", "/v1/admin/projects/{project}", _ADMIN, {"statuses": "full"}),
    Route("PATCH", "/v1/admin/projects/{project}", _ADMIN, {"limit_day": 100_000, "statuses": "full"}),
    Route("PATCH", "/v1/admin/projects/{project}", _ADMIN, {"closed": False}),
    Route("POST", "/v1/admin/projects/{fresh}/erasure", _ADMIN, {"project": "{fresh}"}),
    Route("GET", "/v1/admin/projects/{fresh}/erasure", _ADMIN, endured=frozenset({404})),
    # What weighs against other organizations is the operator's.
    Route("PATCH", "/v1/admin/projects/{project}", _NOBODY, {"weight": 1}),
    Route("PATCH", "/v1/admin/projects/{project}", _NOBODY, {"max_active": 5000}),
    Route("GET", "/v1/admin/tasks?project={project}", _ALL),
    Route("GET", f"/v1/admin/members?{_ORGANIZATION}", _ALL),
    Route("PUT", f"/v1/admin/members/ann?{_ORGANIZATION}", _ADMIN, {"role": "viewer"}),
    Route("PUT", f"/v1/admin/members/ann?{_ORGANIZATION}", _ADMIN, {"role": "operator"}, frozenset({422})),
    Route("DELETE", f"/v1/admin/members/bob?{_ORGANIZATION}", _ADMIN, endured=frozenset({404})),
    Route("GET", "/v1/admin/keys?project={project}", _ALL),
    Route("POST", "/v1/admin/keys", _ADMIN, {"name": "x", "project": "{project}"}, own_project=frozenset({_D})),
    Route("POST", "/v1/admin/keys", _ADMIN, {"name": "x", "project": "{project}", "role": _V}),
    Route("POST", "/v1/admin/keys", _ADMIN, {"name": "x", "project": "{project}", "role": _A}),
    Route("POST", "/v1/admin/keys", _NOBODY, {"name": "x", "project": "{project}", "role": OPERATOR}),
    Route("DELETE", "/v1/admin/keys/{key}", _ADMIN, own_project=frozenset({_D})),
    Route("GET", f"/v1/admin/licences?{_ORGANIZATION}", _ALL),
    Route("GET", f"/v1/admin/licences/usage?{_ORGANIZATION}", _MONEY),
    Route("PUT", f"/v1/admin/licences/flux-1-dev?{_ORGANIZATION}", _NOBODY),
    Route("DELETE", f"/v1/admin/licences/flux-1-dev?{_ORGANIZATION}", _NOBODY, endured=frozenset({404})),
    Route("GET", f"/v1/admin/audit?{_ORGANIZATION}", _ADMIN),
)


def attacks(repository: Path, seed: int, count: int) -> Sequence[Play]:
    """Every cell of the table, or a choice of them; then all again as long as there is count."""
    cells = [
        Play(f"{who} on {scope}: {route.method} {route.path} {json.dumps(route.body)}", _acting(route, who, scope))
        for route in TABLE
        for who in (*ROLES, OPERATOR, *_STRANGERS)
        for scope in _scopes(route)
    ]
    if count < len(cells):
        return Random(seed).sample(cells, count)
    again = [Play(f"{cell.name} #{number}", cell.act) for number in range(1, count // len(cells)) for cell in cells]
    return [*cells, *again]


def named(route: Route) -> str:
    """All that it names, path and body."""
    return route.path + json.dumps(dict(route.body or {}))


def _scopes(route: Route) -> Sequence[str]:
    if any(name in named(route) for name in ("{task}", "{project}", "{key}")):
        return (OWN, NEIGHBOUR, FOREIGN)
    return (OWN, FOREIGN) if any(name in named(route) for name in ("{organization}", "{fresh}")) else (OWN,)


def _acting(route: Route, who: str, scope: str) -> Callable[[Stage], Awaitable[Sequence[str]]]:
    async def act(stage: Stage) -> Sequence[str]:
        owner = stage.victim if scope == FOREIGN else stage.attacker
        project = stage.spare if scope == NEIGHBOUR else owner.project
        names = await _names(route, stage, owner, project)
        body = None if route.body is None else _filled(route.body, names)
        target = route.path.format(**{name: quote(value) for name, value in names.items()})
        key = _STRANGERS[who].format(key=stage.key()) if who in _STRANGERS else stage.key(who)
        request = Request(route.method, target, b"" if body is None else json.dumps(body).encode(), JSON)
        answer = await stage.send(request, key, _WITHIN_S)
        if answer.status == 200 and route.path.startswith("/v1/gen-"):
            await stage.cancel(json.loads(answer.body)["id"], key)
        expected = _expected(route, who, scope)
        wrong = verdict.wrong(request, answer, stage.secrets)
        if answer.status not in expected:
            wrong.append(f"HTTP {answer.status}, not one of {sorted(expected)}: {answer.text[:200]}")
        if who != OPERATOR:
            said = target + json.dumps(body)
            private = {stage.victim.organization, stage.victim.project, names.get("task", ""), names.get("key", "")}
            seen = [name for name in private if name and scope == FOREIGN and name not in said and name in answer.text]
            wrong += [f"tells of {name}" for name in seen]
        return wrong

    return act


def _expected(route: Route, who: str, scope: str) -> frozenset[int]:
    """The statuses that the answer may have."""
    if who in _STRANGERS:
        return frozenset({401 if verdict.is_openai(route.path) else 403})
    success = frozenset({200, 201, 204}) | route.endured
    if scope == FOREIGN and "draft_cache" in (route.body or {}):
        return frozenset({422}) if who in (*route.roles, OPERATOR) else frozenset({403})
    if who == OPERATOR:
        return frozenset({404}) if route.hidden else success  # none of these tasks is of the operator's own project
    if who not in route.roles | route.own_project:
        # Whether what is another's is there is not told either way.
        return frozenset({403}) if scope == OWN else frozenset({403, 404})
    if scope == FOREIGN or (scope == NEIGHBOUR and route.hidden):
        return frozenset({404}) | (route.endured & {422})  # a body that is wrong anywhere may be told so
    if scope == NEIGHBOUR and who in route.own_project:
        return frozenset({403})
    return success


async def _names(route: Route, stage: Stage, owner: Tenant, project: str) -> Mapping[str, str]:
    """What stands for the braces; tasks and keys are made anew, as some calls take them away."""
    mark = f"{owner.organization}-{stage.next_number()}"
    names = {"organization": owner.organization, "project": project, "new": mark}
    wanted = named(route)
    if "{task}" in wanted:
        body = {"prompt": "x", "width": 64, "height": 64, "webhook_url": stage.origin.open_url("hook")}
        key = stage.working_keys[project]
        names["task"] = (await stage.made("POST", "/v1/gen-3-image-klein", body, key=key))["id"]
    if "{fresh}" in wanted:
        names["fresh"] = await stage.project(owner.organization)
    if "{key}" in wanted:
        names["key"] = (await stage.made("POST", "/v1/admin/keys", {"name": "x", "project": project}))["id"]
    return names


def _filled(given: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {name: value.format(**names) if isinstance(value, str) else value for name, value in given.items()}
