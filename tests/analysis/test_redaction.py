"""What a Profile leaves out: nothing private in any string field, whatever the field, and nothing
lost that is not."""

from __future__ import annotations

import gzip
import itertools
import json
from typing import Any

import msgspec
import pytest

from kgprof.analysis.redaction import LEFT_OUT, Redactor, redacted, redacted_trace
from kgprof.model import (
    Contents,
    Exit,
    Finding,
    Location,
    LogExcerpt,
    PrivateNames,
    Profile,
    ProjectSource,
    RedactedCategory,
    Skipped,
)
from kgprof.render import RENDERERS
from tests.analysis.test_secrets import CANARIES
from tests.render import profiles

HERE = PrivateNames(
    users=("analima",), hosts=("gpu-node17.corp.example",), homes=("/srv/people/analima",)
)
ROOT = "/srv/people/analima/project"
TOKEN = "ghp_" + "Ab3" * 12
# What is planted, and what of it must never be seen again. Put together here, so that no scanner
# takes them for real.
SECRETS = (
    (TOKEN, TOKEN),
    ("github_pat_" + "1A" * 20, "1A1A1A"),
    ("hf_" + "Qw" * 17, "QwQwQw"),
    ("AKIA" + "ABCDEFGHIJKLMNOP", "ABCDEFGHIJKLMNOP"),
    ("eyJ" + "hbGciOiJI." + "eyJ" + "zdWIiOiIx." + "c2lnbmF0dXJl", "c2lnbmF0dXJl"),
    ("https://bob:hunter2@example.org/x", "hunter2"),
    ("SOME_API_KEY=opensesame1", "opensesame1"),
    ('{"password": "opensesame2"}', "opensesame2"),
    ("Authorization: Bearer abcdefghijklmnopqrstuvwx", "abcdefghijklmnopqrstuvwx"),
    (
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----",
        "b3BlbnNzaA",
    ),
    ("/srv/people/analima/notes/plan.txt", "analima"),
    ("/home/someoneelse/x.py", "someoneelse"),
    ("C:\\Users\\someoneelse\\x.py", "someoneelse"),
    ("/mnt/clusterdisk/secretproject/a/b.py", "secretproject"),
    ("run by analima on gpu-node17", "gpu-node17"),
    ("tcp://gpu-node17.corp.example:29500", "corp.example"),
)


def redactor(root: str = ROOT) -> Redactor:
    return Redactor(HERE, root=root)


@pytest.mark.parametrize(
    ("given", "then"),
    [
        (f"{ROOT}/src/model.py", "src/model.py"),
        (f'File "{ROOT}/src/model.py", line 3, in f', 'File "src/model.py", line 3, in f'),
        (ROOT, "<repository>"),
        (f"{ROOT}-old/x.py", "~/project-old/x.py"),
        (f"{ROOT}/.venv/lib/python3.12/site-packages/torch/nn.py", "<site-packages>/torch/nn.py"),
        ("/usr/lib/python3.12/json/decoder.py", "<python>/json/decoder.py"),
        ("/srv/people/analima/other/x.py", "~/other/x.py"),
        ("/home/bob", "~"),
        ("/root/x.py", "~/x.py"),
        ("/data/graphs/secret/fb15k/train.txt", "<elsewhere>/fb15k/train.txt"),
        ("--data=/data/graphs/secret/fb15k", "--data=<elsewhere>/secret/fb15k"),
        ("/tmp/torchinductor_analima/ab/cabc.py", "<elsewhere>/ab/cabc.py"),
        ("/tmp/torchinductor_analima/cabc.py", "<elsewhere>/torchinductor_<user>/cabc.py"),
        ("/tmp/bob-thesis/secretproject/run7/train.py", "<elsewhere>/run7/train.py"),
        ("/var/lib/jenkins/workspace/secretproject/pr-7/x.py", "<elsewhere>/pr-7/x.py"),
        ("/run/user/1000/bob/x, /dev/shm/bob/ab/c.so", "<elsewhere>/bob/x, <elsewhere>/ab/c.so"),
        ("file:///tmp/bob/secretproject/a/b.py", "file://<elsewhere>/a/b.py"),
        (
            "/mnt/clusterdisk/secretproject/a/b/ and /x-y/a-b/c-d",
            "<elsewhere>/a/b/ and <elsewhere>/a-b/c-d",
        ),
        ("/tmp/x.log, /var/log", "/tmp/x.log, /var/log"),
        ("ssh://analima@gpu-node17/x", "ssh://<credentials>@<host>/x"),
        ("WANDB_API_KEY=0123", "WANDB_API_KEY=<secret>"),
        ("PGPASSWORD=0123 psql", "PGPASSWORD=<secret> psql"),
        ("client_secret: 'open sesame', x", "client_secret: '<secret>', x"),
        ("hf_token=0123&page=2", "hf_token=<secret>&page=2"),
        ("python train.py --db-password hunter2 -v", "python train.py --db-password <secret> -v"),
        ("['--hf-token', 'open sesame', '-v']", "['--hf-token', '<secret>', '-v']"),
        ('{\\"secret\\": \\"open sesame\\"}', '{\\"secret\\": \\"<secret>\\"}'),
    ],
)
def test_what_identifies_is_replaced_and_the_rest_of_the_text_stays(given: str, then: str) -> None:
    redact = redactor()

    assert redact(given) == then
    assert redact(then) == then


@pytest.mark.parametrize(
    ("given", "then"),
    [
        ("/tmp/siblings/mingpt/parts/model.py", "<PYTHONPATH>/mingpt/parts/model.py"),
        (
            "/tmp/siblings/deeper/x.py and /tmp/siblings-old/a/b.py",
            "<PYTHONPATH>/x.py and <elsewhere>/a/b.py",
        ),
        (f"{ROOT}/src/model.py", "src/model.py"),  # the repository comes first
        ("/tmp/siblings", "/tmp/siblings"),
    ],
)
def test_what_pythonpath_leads_to_is_named_from_its_folder(given: str, then: str) -> None:
    folders = ("/tmp/siblings", "/tmp/siblings/deeper", f"{ROOT}/src")
    redact = Redactor(msgspec.structs.replace(HERE, import_folders=folders), root=ROOT)

    assert redact(given) == then
    assert redact(then) == then


@pytest.mark.parametrize(
    "text",
    [
        "12.5 ms/step, 3 reads/step, a/b/c/d and x / y",
        "https://github.com/pytorch/pytorch/blob/main/torch/_dynamo/guards.py",
        "src/home/page.py, tests/root/x.py",
        "/usr/include/c++/12/cmath, /proc/self/status, /sys/fs/cgroup/cpu.max, /dev/null",
        "--max-tokens 128 --tokenizer=bpe next_token: 42",
        "--password --verbose, password='' and the secret of it: nothing",
        "triton_poi_fused_add_0, aten::addmm, cutlass_80_tensorop_s1688gemm_128x256_16x3_tn_align4",
        "8f14e45fceea167a5a36dedd4bea2543c0ffee00",
        "analimatic, xanalima, hf_model, sk-learn, AKIA",
    ],
)
def test_what_is_no_secret_stays_letter_for_letter(text: str) -> None:
    assert redactor()(text) == text


@pytest.mark.parametrize("user", ["max", "step", "root", "al", "compile"])
def test_a_user_whose_name_is_a_word_is_left_out_of_paths_only(user: str) -> None:
    redact = Redactor(PrivateNames(users=(user,)), root="")

    assert redact(f"aten::{user} takes a {user}") == f"aten::{user} takes a {user}"
    # root is everybody's: it names nobody
    assert (
        redact(f"/tmp/torchinductor_{user}")
        == f"/tmp/torchinductor_{user if user == 'root' else '<user>'}"
    )


# ---------------------------------------------------------------- a Profile

# These choose how a renderer goes on: they are words of the model and come from nowhere else.
WORDS = (
    *(
        "kind",
        "verdict",
        "level",
        "status",
        "outcome",
        "bound",
        "measured_in",
        "observer",
        "better",
        "time_of",
    ),
    *("passes", "fail_on"),
)
FIXED = ("created_utc", "unit", "basis", "device", "fused_kinds", "rules")


def planted(profile: Profile, secrets: tuple[tuple[str, str], ...] = SECRETS) -> Profile:
    """Every string of it is one of SECRETS, in turn; of a dictionary every key too."""
    texts = itertools.cycle(secret for secret, _ in secrets)
    numbers = itertools.count()

    def plant(value: Any, name: str = "") -> Any:
        if name in WORDS or name in FIXED or (name == "accepted" and value == ""):
            return value
        if isinstance(value, str):
            return f"{next(numbers)} {next(texts)}"
        if isinstance(value, list | tuple):
            return [plant(item, name) for item in value]
        if isinstance(value, dict):
            free = name in ("flags", "settings", "counted", "reads")
            return {
                (f"{next(numbers)} {next(texts)}" if free else key): plant(
                    item, "" if free else str(key)
                )
                for key, item in value.items()
            }
        return value

    document = plant(msgspec.to_builtins(profile))
    document["verdict"] = {
        "status": "failed",
        "text": secrets[0][0],
        "reasons": [secret for secret, _ in secrets],
    }
    return msgspec.convert(document, Profile)


@pytest.mark.parametrize("state", ["cuda", "findings", "watched", "gate", "dead"])
def test_no_renderer_says_a_secret_planted_in_any_string_field(state: str) -> None:
    profile = planted(profiles.STATES[state]())
    # given: the secrets do come out of a Profile that is not redacted
    as_it_is = RENDERERS[1].render(profile)
    assert all(hidden in as_it_is for _, hidden in SECRETS)

    safe = redacted(profile, HERE)

    for renderer in RENDERERS:
        text = renderer.render(safe)
        assert [hidden for _, hidden in SECRETS if hidden in text] == [], renderer.name


@pytest.mark.parametrize("first", range(0, len(CANARIES), 44))
def test_no_renderer_says_a_canary(first: int) -> None:
    canaries = [(text, hidden) for text, hidden in CANARIES[first : first + 44] if len(hidden) > 5]
    profile = planted(profiles.STATES["watched"](), tuple(canaries))
    assert all(hidden in RENDERERS[1].render(profile) for _, hidden in canaries if hidden.isalnum())

    safe = redacted(profile, HERE)

    for renderer in RENDERERS:
        text = renderer.render(safe)
        assert [hidden for _, hidden in canaries if hidden in text] == [], renderer.name


def test_a_setting_that_is_named_as_a_secret_is_left_out() -> None:
    told = profiles.clean()
    run = told.runs[0]
    assert not isinstance(run.evaluation, Skipped)
    settings = {"dataset": "fb15k", "hub_token": "hunter2", "max_tokens": "128", "cache_key": "abc"}
    evaluation = msgspec.structs.replace(run.evaluation, settings=settings)
    given = msgspec.structs.replace(
        told, runs=(msgspec.structs.replace(run, evaluation=evaluation),)
    )

    (safe, *_) = redacted(given, PrivateNames()).runs

    assert not isinstance(safe.evaluation, Skipped)
    assert safe.evaluation.settings == {**settings, "hub_token": "<secret>"}


@pytest.mark.parametrize(
    "state", ["clean", "cuda", "findings", "watched", "gate", "dead", "hostile"]
)
def test_redacting_twice_changes_nothing_more(state: str) -> None:
    profile = planted(profiles.STATES[state]()) if state != "hostile" else profiles.hostile()

    once = redacted(profile, HERE)

    twice = redacted(once, HERE)
    assert twice == once


def test_fingerprints_stay_what_they_were() -> None:
    # given: a machine whose name is a fingerprint, as a container's may be
    told = profiles.watched()
    first, *others = told.findings
    told = msgspec.structs.replace(
        told, findings=(msgspec.structs.replace(first, fingerprint="0123456789ab"), *others)
    )

    safe = redacted(told, PrivateNames(hosts=("0123456789ab",)))

    assert [f.fingerprint for f in safe.findings] == [f.fingerprint for f in told.findings]
    assert [item.findings for item in safe.checklist] == [item.findings for item in told.checklist]


def test_values_of_unknown_variables_are_left_out_and_equal_ones_look_equal() -> None:
    flags = {
        "TORCH_HOME": "x",
        "CUDA_MYSTERY": "x",
        "KGPROF_NOTE": "y",
        "OMP_NUM_THREADS": "2",
        "TORCH_TOKEN": "z",
    }
    told = profiles.clean()
    given = msgspec.structs.replace(
        told, environment=msgspec.structs.replace(told.environment, flags=flags)
    )

    shown = redacted(given, PrivateNames()).environment.flags

    assert shown["OMP_NUM_THREADS"] == "2"
    assert shown["TORCH_HOME"] == shown["CUDA_MYSTERY"] != shown["KGPROF_NOTE"]
    assert all(shown[name].startswith("<value ") for name in flags if name != "OMP_NUM_THREADS")


def test_what_follows_an_option_named_as_a_secret_is_left_out_of_the_command() -> None:
    words = (
        "kgprof",
        "profile",
        "a.py",
        "--",
        "--hf-token",
        "abc",
        "--api-key=def",
        "--max-tokens",
        "128",
    )

    safe = redacted(msgspec.structs.replace(profiles.clean(), command=words), PrivateNames())

    said = (
        "kgprof",
        "profile",
        "a.py",
        "--",
        "--hf-token",
        "<secret>",
        "--api-key=<secret>",
        "--max-tokens",
        "128",
    )
    assert safe.command == said


def test_the_contents_say_what_was_left_out_by_category_and_count() -> None:
    given = msgspec.structs.replace(
        profiles.empty(), command=("kgprof", "/home/bob/x.py", TOKEN, TOKEN)
    )

    assert redacted(given, PrivateNames()).contents == Contents(
        redaction=True,
        source="repo",
        redacted=(
            RedactedCategory(category="home directories", count=1),
            RedactedCategory(category="tokens and keys", count=2),
        ),
    )
    assert redacted(given, PrivateNames(), redact=False) == msgspec.structs.replace(
        given, contents=Contents(redaction=False, source="repo")
    )


# ---------------------------------------------------------------- source lines

TRACEBACK = (
    "Traceback (most recent call last):\n"
    f'  File "{ROOT}/model.py", line 3, in step\n'
    "    return ours(x)\n"
    "           ^^^^^^^\n"
    f'  File "{ROOT}/.venv/lib/python3.12/site-packages/torch/nn.py", line 9, in call\n'
    "    return torchs(x)\n"
    '  File "/opt/company/private/lib.py", line 7, in theirs\n'
    "    return theirs(x)\n"
    "ValueError: no\n"
)
LOG = (
    "V0101 [0/0] ==> size mismatch\n"
    f'V0101 [0/0]   File "{ROOT}/model.py", line 4, in step\n'
    "V0101 [0/0]     y = ours2(x)\n"
    "L['x'].size()[0] == 5  # y = theirs2(x)  # /opt/company/private/lib.py:8 in theirs\n"
)


def with_source() -> Profile:
    told = profiles.clean()
    ours = Location(file=f"{ROOT}/model.py", line=41, function="step", text="if ours3 > 0:")
    theirs = Location(file="/opt/company/private/lib.py", line=1, function="f", text="theirs3 = 1")
    finding = Finding(
        rule="KGP101",
        level="warning",
        message="broke",
        run=told.runs[0].key,
        location=ours,
        related=(theirs,),
    )  # type: ignore[arg-type]
    run = msgspec.structs.replace(
        told.runs[0],
        exit=Exit(outcome="raised", message="no", traceback=TRACEBACK),
        log=LogExcerpt(text=LOG, left_out_bytes=0),
    )
    return msgspec.structs.replace(
        told,
        runs=(run,),
        findings=(finding,),
        environment=msgspec.structs.replace(told.environment, source_root=ROOT),
    )


@pytest.mark.parametrize(
    ("source", "seen", "gone"),
    [
        (
            "repo",
            ("ours(x)", "ours2(x)", "ours3 > 0"),
            ("theirs(x)", "theirs2(x)", "theirs3 = 1", "torchs(x)"),
        ),
        (
            "none",
            (),
            (
                "ours(x)",
                "ours2(x)",
                "ours3 > 0",
                "theirs(x)",
                "theirs2(x)",
                "theirs3 = 1",
                "torchs(x)",
            ),
        ),
        (
            "all",
            (
                "ours(x)",
                "ours2(x)",
                "ours3 > 0",
                "theirs(x)",
                "theirs2(x)",
                "theirs3 = 1",
                "torchs(x)",
            ),
            (),
        ),
    ],
)
def test_source_lines_stay_where_they_are_asked_for(
    source: str, seen: tuple[str, ...], gone: tuple[str, ...]
) -> None:
    safe = redacted(with_source(), HERE, source=source)

    text = RENDERERS[1].render(safe)
    assert [part for part in seen if part not in text] == []
    assert [part for part in gone if part in text] == []
    assert safe.contents is not None
    assert (safe.contents.source_lines, safe.contents.source_lines_left_out) == (
        len(seen),
        len(gone),
    )
    # then: what is no source line is still there
    assert "ValueError: no" in text
    assert "L['x'].size()[0] == 5" in text


@pytest.mark.parametrize(
    ("source", "kept"), [("none", ()), ("repo", ("own",)), ("all", ("own", "theirs"))]
)
def test_whole_files_stay_where_their_lines_do(source: str, kept: tuple[str, ...]) -> None:
    root = with_source().environment.source_root
    files = {"own": f"{root}/own.py", "theirs": "/opt/site-packages/theirs.py"}
    sources = tuple(
        ProjectSource(file=file, sha256="", text=f"{name} = 1\n") for name, file in files.items()
    )

    safe = redacted(msgspec.structs.replace(with_source(), sources=sources), HERE, source=source)

    texts = {name: each.text for name, each in zip(files, safe.sources, strict=True)}
    assert {name: text for name, text in texts.items() if isinstance(text, str)} == {
        n: f"{n} = 1\n" for n in kept
    }
    assert all(
        "--include-source" in text.reason for text in texts.values() if isinstance(text, Skipped)
    )


def test_a_traceback_says_where_a_line_was() -> None:
    (run, *_) = redacted(with_source(), HERE).runs

    assert run.exit.traceback == (
        "Traceback (most recent call last):\n"
        '  File "model.py", line 3, in step\n'
        "    return ours(x)\n"
        "           ^^^^^^^\n"
        '  File "<site-packages>/torch/nn.py", line 9, in call\n'
        f"    {LEFT_OUT}\n"
        '  File "<elsewhere>/private/lib.py", line 7, in theirs\n'
        f"    {LEFT_OUT}\n"
        "ValueError: no\n"
    )


# ---------------------------------------------------------------- a trace


def test_a_trace_stays_json_and_says_no_secret() -> None:
    events = [{"name": f'a "quoted" {secret}', "args": {secret: [secret]}} for secret, _ in SECRETS]

    made = redacted_trace(json.dumps({"traceEvents": events}), HERE)

    found = json.loads(made)["traceEvents"]
    assert len(found) == len(events)
    assert [hidden for _, hidden in SECRETS if hidden in made] == []
    assert gzip.compress(made.encode(), mtime=0)
