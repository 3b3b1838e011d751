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


# the JSON that stands beside a page of the same name
DOCUMENTS = {
    "report": (m.Profile, m.PROFILE_SCHEMA_VERSION),
    "sweep": (m.Sweep, m.SWEEP_SCHEMA_VERSION),
    "capture": (m.CaptureReport, m.CAPTURE_SCHEMA_VERSION),
    "history": (m.History, m.HISTORY_SCHEMA_VERSION),
    "trend": (m.Trend, m.TREND_SCHEMA_VERSION),
    "fix": (m.Fix, m.FIX_SCHEMA_VERSION),
}


def schema(name: str = "report") -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of report.json or of another of DOCUMENTS."""
    document, version = DOCUMENTS[name]
    return {
        "$schema": DIALECT,
        "title": f"kgprof {document.__name__}, schema version {version}",
        **msgspec.json.schema(document),
    }
