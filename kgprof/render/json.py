"""The Profile itself, as JSON, and the JSON Schema that describes it."""

from typing import Any

import msgspec

from kgprof import model as m

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Json:
    name = "json"
    suffix = ".json"

    def render(self, profile: m.Profile) -> str:
        return m.encode_json(profile).decode("utf-8")


def schema() -> dict[str, Any]:
    return {
        "$schema": DIALECT,
        "title": f"kgprof Profile, schema version {m.PROFILE_SCHEMA_VERSION}",
        **msgspec.json.schema(m.Profile),
    }
