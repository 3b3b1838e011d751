"""The Profile itself, as JSON, and the JSON Schema that describes it."""

from __future__ import annotations

from typing import Any

import msgspec

from kgprof.model import PROFILE_SCHEMA_VERSION, Profile, encode_json

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Json:
    name = "json"
    suffix = ".json"

    def render(self, profile: Profile) -> str:
        return encode_json(profile).decode("utf-8")


def schema() -> dict[str, Any]:
    """JSON Schema of the document, draft 2020-12."""
    return {
        "$schema": DIALECT,
        "title": f"kgprof Profile, schema version {PROFILE_SCHEMA_VERSION}",
        **msgspec.json.schema(Profile),
    }
