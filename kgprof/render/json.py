"""The Profile itself, as JSON, and the JSON Schema that describes it."""

import re
from typing import Any

import msgspec

from kgprof import model as m

# What JSON may hold as it is and a terminal obeys: the C1 controls, ends of lines and their order.
_STEERING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Json:
    name = "json"
    suffix = ".json"

    def render(self, profile: m.Profile) -> str:
        return inert_json(profile)


def inert_json(value: object) -> str:
    text = m.encode_json(value).decode("utf-8")
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def schema() -> dict[str, Any]:
    return {
        "$schema": DIALECT,
        "title": f"kgprof Profile, schema version {m.PROFILE_SCHEMA_VERSION}",
        **msgspec.json.schema(m.Profile),
    }
