"""SARIF 2.1.0, held to two schemas: the standard's own, and one of our own that is closed against
anything else.

The standard's (schemas/README.md says where it is from) allows every optional member; ours was
written from the standard's sections (3.13 to 3.58) and knows only what kgprof writes, so that a
member in a wrong place is seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgprof.gate import judge
from kgprof.model import Finding, FindingCost, Level, Location, PassName, Profile, RunKey
from kgprof.render import by_name
from kgprof.render.sarif import LIMIT, NO_FILE
from tests.gate import gated
from tests.render import profiles


def closed(required: list[str], **properties: object) -> dict[str, object]:
    optional = {name.removeprefix("maybe_"): value for name, value in properties.items()}
    return {
        "type": "object",
        "required": required,
        "properties": optional,
        "additionalProperties": False,
    }


TEXT = {"type": "string", "minLength": 1}
MESSAGE = {
    "oneOf": [closed(["text"], text=TEXT), closed(["text", "markdown"], text=TEXT, markdown=TEXT)]
}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
COUNTING = {"type": "integer", "minimum": 1}
URI = {"type": "string", "pattern": r"^[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+$"}
BAG = {"type": "object"}
GUID = {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}
REGION = closed(
    ["startLine"],
    startLine=COUNTING,
    endLine=COUNTING,
    startColumn=COUNTING,
    endColumn=COUNTING,
    snippet=closed(["text"], text=TEXT),
)
ARTIFACT = closed(["uri"], uri=URI, uriBaseId=TEXT)
LOGICAL = closed(["fullyQualifiedName"], fullyQualifiedName=TEXT, kind={"enum": ["function"]})
LOCATION = closed(
    ["physicalLocation"],
    physicalLocation=closed(
        ["artifactLocation", "region"], artifactLocation=ARTIFACT, region=REGION
    ),
    logicalLocations={"type": "array", "items": LOGICAL},
    message=MESSAGE,
)
RULE = closed(
    ["id", "name", "shortDescription", "fullDescription", "help", "defaultConfiguration"],
    id=TEXT,
    name=TEXT,
    shortDescription=MESSAGE,
    fullDescription=MESSAGE,
    help=MESSAGE,
    defaultConfiguration=closed(["level"], level=LEVEL),
    properties=BAG,
)
RESULT = closed(
    ["ruleId", "ruleIndex", "level", "message", "locations", "partialFingerprints"],
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": 0},
    level=LEVEL,
    message=MESSAGE,
    locations={"type": "array", "minItems": 1, "maxItems": 1, "items": LOCATION},
    relatedLocations={"type": "array", "minItems": 1, "items": LOCATION},
    partialFingerprints={"type": "object", "minProperties": 1, "additionalProperties": TEXT},
    occurrenceCount=COUNTING,
    baselineState={"enum": ["new", "unchanged", "updated", "absent"]},
    suppressions={
        "type": "array",
        "items": closed(
            ["kind"],
            kind={"enum": ["inSource", "external"]},
            justification=TEXT,
        ),
    },
    properties=BAG,
)
INVOCATION = closed(
    ["executionSuccessful"],
    executionSuccessful={"type": "boolean"},
    exitCode={"type": "integer"},
    exitCodeDescription=TEXT,
    commandLine=TEXT,
    toolExecutionNotifications={
        "type": "array",
        "items": closed(["message"], level=LEVEL, message=MESSAGE),
    },
)
RUN = closed(
    ["tool", "results"],
    tool=closed(
        ["driver"],
        driver=closed(["name"], name=TEXT, version=TEXT, rules={"type": "array", "items": RULE}),
    ),
    automationDetails=closed(["id"], id=TEXT, guid=GUID),
    baselineGuid=GUID,
    originalUriBaseIds={
        "type": "object",
        "additionalProperties": closed([], uri=URI, description=MESSAGE),
    },
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    invocations={"type": "array", "items": INVOCATION},
    results={"type": "array", "items": RESULT},
    properties=BAG,
)
DOCUMENT = closed(
    ["version", "runs"],
    **{"$schema": URI},
    version={"const": "2.1.0"},
    runs={"type": "array", "minItems": 1, "maxItems": 1, "items": RUN},
)
VALIDATOR = jsonschema.Draft202012Validator(DOCUMENT)
STANDARD = jsonschema.Draft202012Validator(
    json.loads(
        (Path(__file__).parent / "schemas" / "sarif-2.1.0.schema.json").read_text(encoding="utf-8")
    ),
    format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER,
)


def rendered(profile: Profile) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(by_name("sarif").render(profile))
    STANDARD.validate(document)
    VALIDATOR.validate(document)
    run: dict[str, Any] = document["runs"][0]
    return run


@pytest.mark.parametrize("state", profiles.STATES)
def test_every_state_has_the_structure_and_the_jsons_counts(state: str) -> None:
    profile = profiles.STATES[state]()

    run = rendered(profile)

    assert len(run["results"]) == len(profile.findings)
    assert run["properties"]["findings"] == len(profile.findings)
    assert run["properties"]["exitCode"] == run["invocations"][0]["exitCode"] == profile.exit_code
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]][: len(profile.rules)] == [
        r.id for r in profile.rules
    ]
    marks = [result["partialFingerprints"]["primaryLocationLineHash"] for result in run["results"]]
    assert len(set(marks)) == len(marks)


def break_level(run: dict[str, Any]) -> None:
    run["results"][0]["level"] = "fatal"


def break_uri(run: dict[str, Any]) -> None:
    run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] = "a b/%zz"


def break_name(run: dict[str, Any]) -> None:
    del run["tool"]["driver"]["name"]


def break_member(run: dict[str, Any]) -> None:
    run["results"][0]["severity"] = "high"


@pytest.mark.parametrize("broken", [break_level, break_uri, break_name, break_member])
def test_both_schemas_refuse_what_is_no_sarif(broken: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(by_name("sarif").render(profiles.findings()))
    broken(document["runs"][0])

    assert [validator.is_valid(document) for validator in (STANDARD, VALIDATOR)] == [False, False]


def test_the_schema_of_the_standard_is_whole() -> None:
    STANDARD.check_schema(STANDARD.schema)

    # given: formats are only looked at where a package for them is installed
    assert {"uri", "uri-reference", "date-time"} <= STANDARD.format_checker.checkers.keys()
    assert len(STANDARD.schema["definitions"]) > 40


def test_a_clean_gate_and_a_failed_one_are_sarif() -> None:
    clean, failed = (
        judge(gated.profile(), gated.settings()),
        judge(gated.profile(gated.finding()), gated.settings()),
    )

    assert [rendered(clean)["results"], len(rendered(failed)["results"])] == [[], 1]
    assert [rendered(p)["invocations"][0]["exitCode"] for p in (clean, failed)] == [0, 1]


def test_a_finding_says_what_it_costs_and_carries_the_figure() -> None:
    cost = FindingCost(
        value=312.5,
        unit="us/step",
        what="the host waited",
        measured_in=(PassName.MEMORY,),
        samples=17,
    )
    finding = msgspec.structs.replace(gated.finding(), cost=cost)

    (result,) = rendered(gated.profile(finding))["results"]

    assert result["message"] == {
        "text": f"{finding.message}; costs 312 µs per step (the host waited; MEMORY, n = 17)"
    }
    assert result["properties"]["cost"] == {
        "value": 312.5,
        "unit": "us/step",
        "what": "the host waited",
        "measuredIn": ["memory"],
        "samples": 17,
    }


def test_a_finding_points_at_its_line_by_a_relative_name() -> None:
    (result,) = rendered(gated.profile(gated.finding()))["results"]

    assert result == {
        "ruleId": "KGP101",
        "ruleIndex": result["ruleIndex"],
        "level": "warning",
        "message": {"text": "graph break (GB0059): print() is called"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": "src/model.py", "uriBaseId": "%SRCROOT%"},
                    "region": {
                        "startLine": 12,
                        "endLine": 12,
                        "startColumn": 5,
                        "endColumn": 13,
                        "snippet": {"text": "    print(x)"},
                    },
                },
                "logicalLocations": [{"fullyQualifiedName": "step", "kind": "function"}],
            }
        ],
        "partialFingerprints": {
            "primaryLocationLineHash": "KGP1010012:1",
            "kgprof/v1": "KGP1010012:1",
        },
        "occurrenceCount": 1,
        "properties": {
            "run": "fused.default",
            "cost": {"notMeasured": "no pass measures what this costs"},
        },
    }


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (f"{gated.ROOT}/a b/%c#.py", {"uri": "a%20b/%25c%23.py", "uriBaseId": "%SRCROOT%"}),
        (f"{gated.ROOT}s/model.py", {"uri": f"file://{gated.ROOT}s/model.py"}),
        ("/usr/lib/x.py", {"uri": "file:///usr/lib/x.py"}),
    ],
)
def test_names_are_escaped_and_other_folders_are_absolute(
    file: str, expected: dict[str, str]
) -> None:
    found = msgspec.structs.replace(gated.finding(), location=Location(file=file, line=1))

    (result,) = rendered(gated.profile(found))["results"]

    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == expected


def test_a_finding_about_a_whole_run_still_has_a_place() -> None:
    found = msgspec.structs.replace(gated.finding(), location=None)

    (result,) = rendered(gated.profile(found))["results"]

    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == NO_FILE.replace(" ", "%20")


def test_other_places_that_matter_are_related() -> None:
    call = Location(file=f"{gated.ROOT}/train.py", line=40, function="main")

    (result,) = rendered(gated.profile(msgspec.structs.replace(gated.finding(), related=(call,))))[
        "results"
    ]

    (related,) = result["relatedLocations"]
    assert related["physicalLocation"]["artifactLocation"]["uri"] == "train.py"
    assert related["message"] == {"text": "in main"}


def test_an_accepted_finding_is_suppressed_with_its_reason() -> None:
    judged = judge(
        gated.profile(gated.finding(), gated.finding("KGP102")),
        gated.settings(entries=[gated.entry()]),
    )

    first, second = rendered(judged)["results"]

    assert first["suppressions"] == [
        {"kind": "external", "justification": "ana, until 2027-01-31: it is a demo"}
    ]
    assert second["suppressions"] == []


def test_more_results_than_code_scanning_shows_are_cut_and_it_says_so() -> None:
    run = rendered(gated.profile(*(gated.finding(line=line) for line in range(1, LIMIT + 6))))

    notes = [
        note["message"]["text"] for note in run["invocations"][0]["toolExecutionNotifications"]
    ]
    assert len(run["results"]) == LIMIT
    assert "5 of 1,005 findings are left out; report.json holds them" in notes
    assert run["properties"]["findings"] == 1005


@pytest.mark.parametrize(
    ("code", "finished"), [(0, True), (1, True), (4, False), (5, True), (6, True), (130, False)]
)
def test_a_gate_that_failed_has_run_and_a_workload_that_died_has_not(
    code: int, finished: bool
) -> None:
    run = rendered(msgspec.structs.replace(profiles.clean(), exit_code=code))

    assert run["invocations"][0]["executionSuccessful"] is finished


anything = st.text(st.characters(), max_size=60) | st.sampled_from(profiles.HOSTILE)
hostile_findings = st.builds(
    Finding,
    rule=st.sampled_from(["KGP101", "KGP501", "KGP999"]),
    level=st.sampled_from(Level),
    message=anything,
    run=st.none() | st.builds(RunKey, strategy=anything, mode=anything),
    location=st.none()
    | st.builds(
        Location, file=anything, line=st.integers(-1, 10**6), function=anything, text=anything
    ),
    count=st.integers(0, 99),
    fingerprint=anything,
)


@given(st.lists(hostile_findings, max_size=8))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_the_names_are_it_is_sarif_with_the_right_counts(found: list[Finding]) -> None:
    run = rendered(msgspec.structs.replace(gated.profile(), findings=tuple(found)))

    assert len(run["results"]) == len(found)
    for level in Level:
        assert run["properties"]["levels"][level.value] == sum(
            finding.level is level for finding in found
        )
        assert sum(result["level"] == level.value for result in run["results"]) == sum(
            f.level is level for f in found
        )


def test_a_path_that_was_shortened_is_said_to_lie_in_no_folder() -> None:
    told = profiles.findings()
    place = Location(file="<site-packages>/torch/nn.py", line=3)
    profile = msgspec.structs.replace(
        told, findings=(msgspec.structs.replace(told.findings[0], location=place),)
    )

    (result,) = json.loads(by_name("sarif").render(profile))["runs"][0]["results"]

    artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": "%3Csite-packages%3E/torch/nn.py"}
