"""Generator of the clients' types from `openapi.json`: `python clients/python/generate_types.py`.

One walk over the document makes the Python and TypeScript files; `Language` has their differences.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent, wrap
from typing import Any, Final, TypeAlias

Schema: TypeAlias = Mapping[str, Any]

_HERE: Final = Path(__file__).parent
DESCRIPTION: Final = _HERE.parents[1] / "openapi.json"
PYTHON_FILE: Final = _HERE / "gen_serve_client/types.py"
TYPESCRIPT_FILE: Final = _HERE.parent / "typescript/gen-serve.d.ts"

_WIDTH: Final = 110
_NOTICE: Final = "Generated from openapi.json by clients/python/generate_types.py. Do not edit; run `make openapi`."
_HEAD: Final = f'''"""Request and response bodies of the interface.

{_NOTICE}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NotRequired, Protocol, TypeAlias, TypedDict, TypeVar, Unpack, overload

R_co = TypeVar("R_co", covariant=True)
'''
_GENERATE: Final = '''Progress: TypeAlias = Callable[[TaskResult], None]
"""Callback that gets the task after every poll."""


# fmt: off
class Generate(Protocol[R_co]):
    """Fields that each endpoint takes. Use `submit` for endpoints that are not listed."""
'''
_OVERLOAD: Final = """
    @overload
    def __call__(
        self, endpoint: Literal["{name}"], *, progress: Progress | None = None,
        timeout_s: float | None = None, idempotency_key: str | None = None, **fields: Unpack[{body}],
    ) -> R_co: ..."""
_BASES: Final = {
    "Request": "Fields of every endpoint.",
    "SeededRequest": "Fields of most image endpoints.",
}
"""Base types, with docstrings: fields that all requests share, and fields that most share."""
_MOST_SHARE: Final = 0.7


@dataclass(frozen=True, slots=True)
class Language:
    plain: Mapping[str, str]
    anything: str
    array: str
    several: str
    mapping: str
    literal: Callable[[Sequence[Any]], str]

    def expression(self, schema: Schema) -> str:
        """Returns the type of a schema."""
        return " | ".join(dict.fromkeys(self._alternatives(schema)))

    def _alternatives(self, schema: Schema) -> Iterator[str]:
        if "$ref" in schema:
            yield _ref_name(schema)
        elif options := schema.get("anyOf") or schema.get("oneOf"):
            for option in options:
                yield from self._alternatives(option)
        elif "const" in schema or "enum" in schema:
            yield self.literal(schema.get("enum") or [schema["const"]])
        elif "prefixItems" in schema:
            yield self.several.format(", ".join(map(self.expression, schema["prefixItems"])))
        elif schema.get("type") == "array":
            yield self.array.format(self.expression(schema["items"]))
        elif schema.get("type") == "object":
            values = schema.get("additionalProperties")
            yield self.mapping.format(self.expression(values) if isinstance(values, dict) else self.anything)
        else:
            yield self.plain[schema["type"]] if "type" in schema else self.anything


PYTHON: Final = Language(
    plain={"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"},
    anything="Any",
    array="list[{}]",
    several="tuple[{}]",
    mapping="dict[str, {}]",
    literal=lambda values: f"Literal[{', '.join(map(json.dumps, values))}]",
)
TYPESCRIPT: Final = Language(
    plain={"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"},
    anything="unknown",
    array="Array<{}>",
    several="[{}]",
    mapping="Record<string, {}>",
    literal=lambda values: " | ".join(map(json.dumps, values)),
)


def python(description: Schema) -> str:
    """Returns the content of `PYTHON_FILE`."""
    parts = [_HEAD]
    requests = {name for names in bodies(description).values() for name in names}
    fields = {name: list(_python_fields(schema)) for name, schema in _schemas(description) if "properties" in schema}
    bases = _base_fields({name: fields[name] for name in requests})
    inherited: Sequence[str] = ()
    for (base, docstring), parent in zip(_BASES.items(), ("TypedDict", *_BASES), strict=False):
        own = (field for field in bases[base] if field not in inherited)
        parts.append(f'class {base}({parent}):\n    """{docstring}"""\n\n' + "".join(own))
        inherited = bases[base]
    for name, schema in _schemas(description):
        if name in fields:
            base = next((b for b in reversed(_BASES) if name in requests and set(bases[b]) <= set(fields[name])), None)
            own = [field for field in fields[name] if base is None or field not in bases[base]]
            head = f"class {name}({base or 'TypedDict'}):\n{indent(_docstring(_description(schema)), '    ')}"
            parts.append(head + "".join(own or ["    pass\n"]))
        else:
            parts.append(f"{name}: TypeAlias = {PYTHON.expression(schema)}\n{_docstring(_description(schema))}")
    endpoint_bodies = bodies(description)
    parts.append(f"Endpoint: TypeAlias = {PYTHON.literal(list(endpoint_bodies))}")
    overloads = [
        _OVERLOAD.format(name=name, body=body) for name, body_names in endpoint_bodies.items() for body in body_names
    ]
    parts.append(_GENERATE + "\n".join(overloads))
    return _format("\n\n".join(parts))


def typescript(description: Schema) -> str:
    """Returns the content of `TYPESCRIPT_FILE`."""
    parts = [f"// Request and response bodies of the interface.\n// {_NOTICE}"]
    for name, schema in _schemas(description):
        if "properties" in schema:
            parts.append(f"{_comment(schema)}export interface {name} {{\n{''.join(_typescript_fields(schema))}}}")
        else:
            parts.append(f"{_comment(schema)}export type {name} = {TYPESCRIPT.expression(schema)};")
    lines = "".join(f'  "{name}": {" | ".join(names)};\n' for name, names in bodies(description).items())
    parts.append(f"/** Request bodies of each endpoint. */\nexport interface Bodies {{\n{lines}}}")
    parts.append("export type Endpoint = keyof Bodies;\n")
    return "\n\n".join(parts)


def bodies(description: Schema) -> dict[str, list[str]]:
    """Returns the types of each endpoint's body; several for an endpoint with modes."""
    result: dict[str, list[str]] = {}
    for path, methods in sorted(description["paths"].items()):
        operation = methods.get("post", {})
        if "generate" in operation.get("tags", ()) and "requestBody" in operation:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            result[path.removeprefix("/v1/")] = [_ref_name(each) for each in schema.get("oneOf", [schema])]
    return result


def _schemas(description: Schema) -> list[tuple[str, Schema]]:
    return [(_type_name(name), schema) for name, schema in sorted(description["components"]["schemas"].items())]


def _ref_name(schema: Schema) -> str:
    return _type_name(schema["$ref"].rpartition("/")[2])


def _type_name(name: str) -> str:
    """Makes `UsageReportInput` of `UsageReport-Input`."""
    return "".join(part[0].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", name))


def _python_fields(schema: Schema) -> Iterator[str]:
    for name, field in schema["properties"].items():
        expression = PYTHON.expression(field)
        annotation = expression if name in schema.get("required", ()) else f"NotRequired[{expression}]"
        yield f"    {name}: {annotation}\n{indent(_docstring(_description(field)), '    ')}"


def _base_fields(requests: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Returns the fields of each of `_BASES`."""
    counts = Counter(field for fields in requests.values() for field in fields)
    minimums = (len(requests), _MOST_SHARE * len(requests))
    return {
        base: sorted(field for field, count in counts.items() if count >= minimum)
        for base, minimum in zip(_BASES, minimums, strict=True)
    }


def _typescript_fields(schema: Schema) -> Iterator[str]:
    for name, field in schema["properties"].items():
        mark = "" if name in schema.get("required", ()) else "?"
        yield f"{indent(_comment(field), '  ')}  {name}{mark}: {TYPESCRIPT.expression(field)};\n"


def _description(schema: Schema) -> str:
    """Returns the schema's description with its default."""
    text, default = schema.get("description", "").strip(), schema.get("default")
    if default in (None, "", []):
        return text
    default_text = f"Default: `{default if isinstance(default, str) else json.dumps(default)}`."
    return f"{text.rstrip('.')}. {default_text}" if text else default_text


def _docstring(text: str) -> str:
    return '"""{}"""\n'.format("\n".join(wrap(text.replace("\\", "\\\\"), _WIDTH))) if text else ""


def _comment(schema: Schema) -> str:
    text = _description(schema).replace("*/", "* /")
    return f"/** {text} */\n" if text else ""


def _format(module: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(PYTHON_FILE), "-"]
    return subprocess.run(command, input=module, text=True, capture_output=True, check=True).stdout


def main() -> None:
    description = json.loads(DESCRIPTION.read_text())
    PYTHON_FILE.write_text(python(description))
    TYPESCRIPT_FILE.write_text(typescript(description))


if __name__ == "__main__":
    main()
