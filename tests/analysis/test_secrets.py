"""Secrets go, whatever text they stand in; what people read a report for stays letter for letter.

No canary stands here whole: each is put together, so that no scanner of this repository takes it
for real.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import string
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgprof.analysis.redaction import Redactor
from kgprof.analysis.secrets import SWITCHES, random, without_secrets
from kgprof.model import PrivateNames

HEX = "9f86d081884c7d659a2feaa0c55ad015"
MIXED = "Zx8QmN2vLr5TkYw9BcJd4HfGs7Pa1Ue3"
LOWER = "k3j9x0q8w1z7v5m2p6r4t0y8u1h9g3s7"

# ---------------------------------------------------------------- canaries

NAMES = (
    *(
        "password",
        "db_password",
        "dbPassword",
        "PGPASSWORD",
        "passwd",
        "passphrase",
        "DB_PASS",
        "smtp_pass",
        "MYSQL_PWD",
    ),
    *(
        "SECRET_KEY",
        "client_secret",
        "clientSecret",
        "secret",
        "DJANGO_SECRET_KEY",
        "AWS_SECRET_ACCESS_KEY",
    ),
    *(
        "api_key",
        "apiKey",
        "OPENAI_API_KEY",
        "private_key",
        "signing_key",
        "encryption_key",
        "ENCRYPTION_KEY_BASE",
    ),
    *(
        "session_token",
        "HF_TOKEN",
        "auth_token",
        "accessToken",
        "refresh_token",
        "GITHUB_TOKEN",
        "TOKEN_PROD",
        "REDIS_AUTH",
    ),
)
FORMS = (
    *(
        "{name} = '{value}'",
        '{name} = b"{value}"',
        "{name}: str = '{value}'",
        "{name} = r'''{value}'''",
        "f({name}='{value}', n=1)",
    ),
    *(
        "os.environ['{name}'] = '{value}'",
        'os.environ.setdefault("{name}", "{value}")',
        "os.getenv('{name}', '{value}')",
    ),
    *(
        "if {name} == '{value}':",
        "user, {name} = 'bob', '{value}'",
        "{name} = os.environ.get('X') or '{value}'",
    ),
    *(
        "{name} = ('{value}'\n        '{value}')",
        "def login(user, {name}='{value}'):",
        "self.{name} = '{value}'.encode()",
    ),
    *(
        '{{"user": "bob", "{name}": "{value}", "ok": true}}',
        '{{\\"{name}\\": \\"{value}\\"}}',
        "{name}: {value}",
    ),
    *(
        "export {name}={value}",
        "{name}={value}",
        '{name} = "{value}"  # TOML',
        "https://h.example/x?{name}={value}&page=2",
    ),
    *(
        "python train.py --{name} {value} -v",
        "--{name}={value}",
        "['train.py', '--{name}', '{value}', '-v']",
    ),
    *(
        "INFO 12:00:01 connecting with {name}='{value}'",
        "ValueError: bad {name}: '{value}'",
        "environ({{'{name}': '{value}', 'A': '1'}})",
    ),
    *(
        "V0101 [0/0]     headers = {{'X': 1, '{name}': '{value}'}}",
        "    {name}='{value}',",
        "    '{name}': b'{value}',",
    ),
)
# With more than "=" or ":" between a name and its value, or in the letters of a shell, a page or an
# address.
FAR_FORMS = (
    *(
        "  {name}: |\n    {value}\n  next: 1\n",
        "  {name}: >-\n    {value}\n",
        "{name} = <<EOT\n{value}\nEOT\n",
    ),
    *(
        "env:\n- name: {name}\n  value: {value}\n",
        '[\n  {{\n    "name": "{name}",\n    "value": "{value}"\n  }}\n]',
    ),
    *(
        'variable "{name}" {{\n  type = string\n  default = "{value}"\n}}\n',
        "set -x {name} {value}",
        "ENV {name} {value}",
    ),
    *(
        '<add key="{name}" value="{value}" />',
        '<input name="{name}" value="{value}">',
        "| {name} | {value} |",
    ),
    *(
        "aws configure set {name} {value}",
        "${{{name}:-{value}}}",
        "{name}: ${{oc.env:X,{value}}}",
        "{name} -> {value}",
    ),
    *("{name}: str = field(default='{value}')", "p.add_argument('--{name}', default='{value}')"),
    *('let {name}: &str = "{value}";', 'public string {name} {{ get; set; }} = "{value}";'),
    *(
        "to=https%3A%2F%2Fh%2Fx%3F{name}%3D{value}%26z%3D1",
        "{{&quot;{name}&quot;: &quot;{value}&quot;}}",
    ),
    *(
        "\x1b[31m{name}\x1b[0m=\x1b[32m{value}\x1b[0m",
        "\\u0022{name}\\u0022: \\u0022{value}\\u0022",
        "{name}\uff1a{value}",
    ),
)
FAR_NAMES = (
    "password",
    "db_password",
    "clientSecret",
    "SECRET_KEY",
    "auth_token",
    "MYSQL_PWD",
    "passphrase",
)
SHAPES = {
    "GitHub": "ghp_" + MIXED + "Ab3d",
    "GitHub, fine-grained": "github_pat_" + "11" + MIXED + "_" + MIXED,
    "GitLab": "glpat-" + MIXED[:20],
    "Hugging Face": "hf_" + MIXED + "ab",
    "npm": "npm_" + MIXED + "Ab3d",
    "PyPI": "pypi-" + "AgEIcHlwaS5vcmc" + MIXED,
    "AWS": "AKIA" + "ABCDEFGHIJKLMNOP",
    "AWS secret": "wJalrXUtn3FEMI7K" + MIXED[:24],
    "Google": "AIza" + "Sy" + MIXED + "A",
    "Google OAuth": "GOCSPX-" + MIXED[:28],
    "Google access": "ya29." + MIXED + MIXED,
    "Slack": "xoxb-" + "123456789012-" + MIXED[:24],
    "OpenAI": "sk-" + "proj-" + MIXED,
    "Anthropic": "sk-ant-" + "api03-" + MIXED,
    "Stripe": "sk_" + "live_" + MIXED[:24],
    "Docker": "dckr_" + "pat_" + MIXED[:27],
    "Docker, organization": "dckr_" + "oat_" + MIXED,
    "xAI": "xai-" + MIXED + MIXED,
    "Groq": "gsk_" + MIXED + MIXED[:20],
    "Grafana": "glsa_" + MIXED + "_1a2b3c4d",
    "Grafana Cloud": "glc_" + "eyJvIjoiMTIzIiwi" + MIXED,
    "SendGrid": "SG." + MIXED[:22] + "." + MIXED + MIXED[:11],
    "Azure client secret": "Ab3" + "8Q~" + MIXED + "ab",
    "Azure storage": (MIXED * 3)[:86] + "==",
    "DigitalOcean": "dop_" + "v1_" + HEX + HEX,
    "DigitalOcean, OAuth": "doo_" + "v1_" + HEX + HEX,
    "JWT": "eyJ" + "hbGciOiJI." + "eyJ" + "zdWIiOiIx." + "c2lnbmF0dXJl",
    "Telegram": "123456789" + ":AA" + MIXED + "Q",
    "a vendor that nobody named": "acme_" + MIXED,
    "the same in lower case": "acme-" + LOWER,
    "the same in hexadecimal": "acme_" + HEX,
    "no vendor": MIXED + MIXED,
}
PLACES = (
    "{}",
    "key={}, n=3",
    "got '{}' from the server",
    "  x = f('{}')",
    '{{"a": "{}"}}',
    "https://h.example/x?a={}&b=1",
    "run.py {} -v",
)
PEM = (
    ("RSA ", "\\\\nMHcC\\\\nabcdEFGHijkl\\\\n-----END RSA PRIVATE KEY-----"),
    ("RSA ", "\nINFO: MHcC\nINFO: abcdEFGHijkl\nINFO: -----END RSA PRIVATE KEY-----"),
    ("", "', 'MHcC', 'abcdEFGHijkl', '-----END PRIVATE KEY-----']"),
    ("EC ", "\\n'\n     'MHcC\\n'\n     'abcdEFGHijkl\\n')"),
)
WRITTEN = (  # a text, and what must not be seen of it
    ("password = b'x'", "b'x'"),
    ("os.environ['DB_PASSWORD'] = 'correct horse'", "horse"),
    ('"token": "x"', '"x"'),
    ("Authorization: token abc123def", "abc123def"),
    ("authorization: Basic " + "Ym9iOmh1bnRlcjI=", "Ym9iOmh1bnRlcjI"),
    ("Authorization: Bearer " + "abcdefghijklmnopqrstuvwx", "abcdefghijklmnopqrstuvwx"),
    ("{'Authorization': 'ApiKey ' + 'hunter2'}", "hunter2"),
    ("('Authorization', 'token hunter2')", "hunter2"),
    ("X-Api-Key: hunter2", "hunter2"),
    ("Cookie: session=hunter2; user=bob", "hunter2"),
    ("train.py --auth hunter2", "hunter2"),
    ("train.py --auth=hunter2", "hunter2"),
    ("curl -u bob:hunter2 https://h.example", "hunter2"),
    ("mysql -uroot -phunter2 db", "hunter2"),
    ("sshpass -p hunter2 ssh h.example", "hunter2"),
    ("docker login -u bob -p hunter2", "hunter2"),
    ("postgresql://bob:hunter2@h.example/db", "hunter2"),
    ("redis://:hunter2@h.example:6379", "hunter2"),
    ("Server=h;Uid=sa;Pwd=hunter2;", "hunter2"),
    ("AccountName=x;AccountKey=" + MIXED + MIXED + "==", MIXED),
    ("Endpoint=sb://h/;SharedAccessKey=" + MIXED + "=", MIXED),
    ("https://h.example/c?sv=2024&sig=" + MIXED + "%3D", MIXED),
    ("https://hooks.slack.com/services/" + "T000/B000/" + "hunter2", "hunter2"),
    ("machine h.example login bob password hunter2", "hunter2"),
    ("<password>hunter2</password>", "hunter2"),
    ("CREATE USER bob IDENTIFIED BY 'hunter2'", "hunter2"),
    ("//registry.npmjs.org/:_authToken=hunter2", "hunter2"),
    ('{"auths": {"h.example": {"auth": "Ym9iOmh1bnRlcjI="}}}', "Ym9iOmh1bnRlcjI"),
    (
        "-----BEGIN " + "OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----",
        "b3BlbnNzaA",
    ),
    ("'-----BEGIN " + "RSA PRIVATE KEY-----\\nb3BlbnNzaA==\\n", "b3BlbnNzaA"),
    (
        "-----BEGIN "
        + "PGP PRIVATE KEY BLOCK-----\n\nb3BlbnNzaA==\n-----END PGP PRIVATE KEY BLOCK-----",
        "b3BlbnNzaA",
    ),
    ("client.login('bob', password=SecretStr('hunter2'))", "hunter2"),
    ("session.auth = HTTPBasicAuth('bob', 'hunter2')", "hunter2"),
    ("cfg.set_password('hunter2')", "hunter2"),
    ('password = """hunter2\nhunter3"""', "hunter3"),
    ('{"password": "hunter2', "hunter2"),
    ("aws_access_key_id = 'hunter2'", "hunter2"),
    ("passwords = ['hunter2', 'hunter3']", "hunter3"),
    *((f"-----BEGIN {kind}PRIVATE KEY-----{text}", "abcdEFGHijkl") for kind, text in PEM),
    (
        "key=-----BEGIN%20"
        + "PRIVATE%20KEY-----%0AMHcC%0AabcdEFGHijkl%0A-----END%20PRIVATE%20KEY-----",
        "abcdEFGHijkl",
    ),
    (
        "---- BEGIN SSH2 ENCRYPTED " + "PRIVATE KEY ----\nabcdEFGHijkl\n---- END SSH2",
        "abcdEFGHijkl",
    ),
    ("PuTTY-User-Key-File-3: x\nPrivate-Lines: 1\nabcdEFGHijkl\nPrivate-MAC: 00ff", "abcdEFGHijkl"),
    ("bob:$apr1$" + "abcdefgh$0123456789abcdefABCDEF", "0123456789abcdefABCDEF"),
    (
        'Authorization: Digest username="bob", response="6629fae49393a05397450978507c4ef1"',
        "6629fae49393",
    ),
    ('{"name": "Authorization", "value": "Basic Ym9iOnB3"}', "Ym9iOnB3"),
    ("postgres://bob:hun/ter2@h/db", "ter2"),
    ("postgres://bob:hun@ter2@h/db", "ter2"),
    ("dsn=postgresql%3A%2F%2Fbob%3Ahunter2%40h%2Fdb", "hunter2"),
    ("jdbc:oracle:thin:bob/hunter2@//h:1521/x", "hunter2"),
    ("SERVER=h;UID=bob;PWD={hunter2}", "hunter2"),
    ("Server=h;User Id=sa;Password=hun ter2;Encrypt=no", "ter2"),
    ("ALTER USER bob WITH PASSWORD 'hunter2'", "hunter2"),
    ("unzip -P hunter2 x.zip", "hunter2"),
    ("openssl enc -pass pass:hunter2 -in x", "hunter2"),
    ("::add-mask::hunter2", "hunter2"),
    ("ansible_become_pass: hunter2", "hunter2"),
    ("    client-key-data: LS0tLS1CRUdJTi", "LS0tLS1"),
    ("vault login hvs." + MIXED, MIXED),
)
CANARIES = (
    *(
        (FORMS[i % len(FORMS)].format(name=name, value="hunter2!x"), "hunter2!x")
        for i, name in enumerate(NAMES)
    ),
    *((FORMS[i].format(name="DB_PASSWORD", value=LOWER), LOWER) for i in range(len(FORMS))),
    *((PLACES[i % len(PLACES)].format(shape), shape) for i, shape in enumerate(SHAPES.values())),
    *WRITTEN,
)


def shown(text: str) -> str:
    return without_secrets(text, Counter())


def test_there_are_as_many_canaries_as_were_promised() -> None:
    assert len(set(CANARIES)) >= 120


def test_a_canary_goes_and_is_counted() -> None:
    wrong = []
    for text, hidden in CANARIES:
        counts: Counter[str] = Counter()
        safe = without_secrets(text, counts)
        if hidden in safe or not counts.total() or shown(safe) != safe:
            wrong.append((text, safe, shown(safe), counts))

    assert wrong == []


@pytest.mark.parametrize(
    "before", ["12 ", "V1122 10:00:00.000 [0/0]     ", "INFO:root:", "train.py:3: ", "> "]
)
def test_a_canary_goes_behind_what_a_log_puts_before_it(before: str) -> None:
    assert [text for text, hidden in CANARIES if hidden in shown(before + text)] == []


def test_each_name_is_known_in_each_form() -> None:
    texts = [form.format(name=name, value="hunter2!x") for form in FORMS for name in NAMES]

    assert [text for text in texts if "hunter2" in shown(text)] == []


def test_each_name_is_known_far_from_its_value() -> None:
    texts = [form.format(name=name, value="hunter2!x") for form in FAR_FORMS for name in FAR_NAMES]

    assert [text for text in texts if "hunter2" in shown(text)] == []
    assert [text for text in texts if shown(shown(text)) != shown(text)] == []


def test_each_shape_is_known_in_each_place() -> None:
    seen = [
        (vendor, place)
        for vendor, shape in SHAPES.items()
        for place in PLACES
        if shape in shown(place.format(shape))
    ]

    assert seen == []


@given(
    value=st.text(
        "abcdefghijkmnpqrstuvwxyz0123456789!#%*+-/@^_~ \u00e9\u4e16", min_size=8, max_size=30
    ),
    quote=st.sampled_from("'\""),
)
def test_no_value_in_quotes_stays(value: str, quote: str) -> None:
    value = f"Q9{value}9Q"

    assert value not in shown(f"x = 1\npassword = b{quote}{value}{quote}\ny = 2\n")


def test_an_f_string_without_words_of_its_own_stays() -> None:
    assert (
        shown('headers["Authorization"] = f"Bearer {token}"')
        == 'headers["Authorization"] = f"Bearer {token}"'
    )
    assert shown('password = f"hunter2{x}"') == 'password = f"<secret>"'


HOSTILE = (
    *(
        "key" * 30_000,
        "key=" * 20_000,
        "https://h.example/x " * 10_000,
        "token='" * 20_000,
        "token" + " " * 50_000,
    ),
    *(
        "token='x'" + "(" * 5_000,
        "password = " + "+".join(["'a1'"] * 10_000),
        "-----BEGIN " + "PRIVATE KEY-----" * 9_000,
    ),
    *(
        "token" + "\\" * 50_000 + '"',
        "authorization: " * 9_000,
        "aB3+/" * 50_000,
        "a_" * 50_000,
        "api_" * 20_000,
    ),
    *(
        'token = "a"; x' + "[0]" * 3_000,
        'token = "a"; x' + ".a" * 3_000,
        "eyJaaaaaaaa." * 9_000,
        "cookie: a" * 9_000,
    ),
    *(
        str({f"token_{n}": "<x>" for n in range(5_000)}),
        "login a " * 9_000,
        "?&sig=" * 9_000,
        "\x00token='\ud800'",
    ),
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_takes_no_time(text: str) -> None:
    began = time.process_time()

    shown(text)

    # each takes less than 0.5 s; what is quadratic takes minutes
    assert time.process_time() - began < 3


# ---------------------------------------------------------------- what is no secret

PLAIN = (
    *(
        "token = tokenizer(x)",
        "num_tokens=4096",
        "tokens = ['the', 'cat']",
        "--max-tokens 128 --tokenizer=bpe",
        "next_token: 42",
    ),
    *(
        'pad_token="<pad>"',
        "eos_token = '</s>'",
        'tokenizer.mask_token = "[MASK]"',
        "bos_token='begin'",
        "token: torch.Tensor",
    ),
    *(
        "token = tokens[:, -1]",
        "token_embedding = nn.Embedding(50257, 768)",
        "token=next_token",
        "logits, token = step(token)",
    ),
    *(
        "password = getpass.getpass()",
        "password=password",
        "api_key=os.environ['API_KEY']",
        "secret = self.secret",
        "auth=None",
    ),
    *(
        "def login(user: str, password: str | None = None) -> None:",
        "password: SecretStr",
        "--token TOKEN",
        "--password $DB_PASSWORD",
    ),
    *(
        "api_key = config.get('api_key')",
        "hf_token: Optional[str] = None",
        "password=''",
        "password = '****'",
        "token={token}",
    ),
    *(
        "key = 'weight'",
        "cache_key = 'fxgraph'",
        "sort_key=name",
        "dispatch_key: CPU",
        "state_dict['key'] = value",
        "for key, value in x:",
    ),
    *(
        "post_grad_custom_pass = 'fuse'",
        "POST_GRAD_PASS=fuse",
        "pass: TIMING",
        "passes=compile,timing",
        "pattern_pass: None",
    ),
    *(
        "q, k, v = qkv; key = key.view(1, 2)",
        "query_key_value=3",
        "foreign_key='users.id'",
        "KEY=1",
        "PWD=/work/project",
        "OLDPWD=/",
    ),
    *(
        "author: Bob",
        "authority=example.org",
        "compass: north",
        "keyword = 'x'",
        "monkey=banana",
        "secretary: Alice",
        "auth_mode=none",
    ),
    *(
        "GOOGLE_APPLICATION_CREDENTIALS=/etc/gcp/key.json",
        "key_file: ./server.key",
        "ssl_key='/etc/ssl/private.pem'",
    ),
    # Kernels, functions and operators
    *(
        "triton_poi_fused__to_copy_add_mul_native_layer_norm_0",
        "triton_red_fused_cross_entropy_loss_backward_12",
        "buf12 = extern_kernels.addmm",
    ),
    *(
        "cutlass_80_tensorop_s1688gemm_128x256_16x3_tn_align4",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_warpgroupsize2x1x1_execute",
    ),
    *(
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize256x64x8_stage3_warpsize4x1x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
    ),
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
    "std::array<char*, 1ul> >(int)",
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
    "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEENS1_10collective13CollectiveMmaINS1_34MainloopSm90",
    *(
        "ampere_sgemm_128x64_tn",
        "flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 256, 4>>",
        "Nvf4TmaWarpSpecialized1SmSm100",
    ),
    *(
        "nvjet_hsh_128x64_64x8_2x1_v_bz_NTN",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ScheduleInterleaved1F1B",
    ),
    # Hashes, cache keys, names of files
    *(
        "sha256: " + HEX + HEX,
        '{"sha256": "' + "fdc518d9" * 8 + '"}',
        "fxgraph-" + HEX,
        "commit " + HEX[:40],
        "graph_hash = '" + HEX + "'",
    ),
    *(
        "FX graph cache miss for key fkq7mxv2eyjc3dh4n5o6ptabwzgklsiru2v7xq4ycdhm3e5np6o",
        "torchinductor/ab/cabc" + "q7mxv2eyjc3dh4n5o6ptabwzgklsiru.py",
    ),
    *(
        "~/.triton/cache/" + "QH5ZK2M7XW3LJ4R6TPVBNDYCFSGA" * 2 + "/add.cubin",
        "cache_key=" + HEX,
        "cache_key = 'f" + "q7mxv2eyjc3dh4n5" * 3 + "'",
    ),
    *(
        "123e4567-e89b-12d3-a456-426614174000",
        "GPU-123e4567-e89b-12d3-a456-426614174000",
        "sha256-" + MIXED + MIXED[:11] + "=",
        "run_id=" + HEX,
    ),
    *(
        "2026-11-22T21:48:50.123456+00:00",
        "step 12: 0.123456789012345678 ms",
        "0x7f3a9c0de1b24f58",
        "4096x4096x11008",
        "float32[64, 128][128, 1]cuda:0",
    ),
    # torch's switches and words, FX nodes, guards, links
    *(
        "TORCH_LOGS=+dynamo,graph_breaks,recompiles",
        "TORCHINDUCTOR_MAX_AUTOTUNE=1",
        "TORCHINDUCTOR_FX_GRAPH_CACHE=0",
        "OMP_NUM_THREADS=8",
    ),
    *(
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "%add_12 : [num_users=2] = call_function[target=torch.ops.aten.add.Tensor]",
    ),
    *(
        "l_self_modules_layers_modules_0_modules_self_attn_modules_q_proj_parameters_weight_",
        'primals_1: "f32[64, 64][64, 1]" = view_default_17',
    ),
    *(
        "L['self'].layers[0].attn.q_proj.weight.size()[0] == 4096",
        "TENSOR_MATCH: check_tensor(L['token'], Tensor, DispatchKeySet(CPU))",
    ),
    *(
        "https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU/preview",
        "https://pytorch.org/docs/stable/x.html#key",
    ),
    *(
        "https://github.com/pytorch/pytorch/blob/" + HEX + "01234567/torch/_dynamo/guards.py#L12",
        "tcp://localhost:29500",
        "a@example.org",
    ),
    *(
        "in the token that the secret names: nothing, with a password or a key of it",
        "Basic operations and a bearer of news",
    ),
    *(
        "| token | count |\n| auth | 3 |",
        "token -> embedding",
        "def login(auth) -> Session:",
        "set token ids; config set x 3",
        "name: key, value: query",
        '{"name": "cache_key", "value": "a/b"}',
        "100%25 of the %3d tokens",
        "\x1b[31mkey\x1b[0m: a &quot;b&quot;",
        "client_key_data = load(path)",
        "password: |",
        "${HOME:-/root}/.cache",
        "x = torch.where(token_mask, a, b)  # token -> id",
    ),
)


@pytest.mark.parametrize("around", ["{}", "V1122 10:00:00.000 [0/0] {}\n"])
def test_what_is_no_secret_stays_letter_for_letter(around: str) -> None:
    texts = [around.replace("{}", text) for text in PLAIN]

    assert {text: safe for text in texts if (safe := shown(text)) != text} == {}


RECORDINGS = Path(__file__).resolve().parents[2] / "fixtures" / "recordings"
STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')


def recorded_texts() -> Iterator[tuple[str, bytes]]:
    for path in sorted(RECORDINGS.rglob("*")):
        if path.suffix == ".tgz":
            with tarfile.open(path) as archive:
                for member in archive:
                    if (file := archive.extractfile(member)) is not None:
                        yield f"{path.name}/{member.name}", file.read()
        elif path.is_file():
            yield str(path), path.read_bytes()


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])
def test_no_text_of_a_committed_recording_is_changed(every: int) -> None:
    # given: each line of its logs, sources and records once, and each string of its traces
    texts: set[str] = set()
    for name, data in recorded_texts():
        with contextlib.suppress(UnicodeDecodeError):  # results are no text
            traced = name.endswith(".gz")
            text = (gzip.decompress(data) if traced else data).decode("utf-8")
            texts.update(STRING.findall(text) if traced else text.splitlines())
    assert len(texts) > 40_000

    # then: nothing in them is a secret
    chosen = sorted(texts)[::every]  # neighbours are alike
    assert {text: safe for text in chosen if (safe := shown(text)) != text} == {}


# ---------------------------------------------------------------- chance, and switches


@given(st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", min_size=1, max_size=60))
def test_letters_alone_are_not_chance(text: str) -> None:
    assert not random(text)


@given(st.text("0123456789abcdef", min_size=16, max_size=64))
def test_a_hash_is_not_chance(text: str) -> None:
    assert shown(f"sha256: {text}") == f"sha256: {text}"


@pytest.mark.parametrize(
    "alphabet", [string.ascii_letters + string.digits, string.ascii_lowercase + string.digits]
)
def test_forty_letters_and_digits_by_chance_are_seen_as_such(alphabet: str) -> None:
    draw = Random(0)

    assert sum(random("".join(draw.choices(alphabet, k=40))) for _ in range(500)) >= 480


def test_a_switch_is_one_that_is_known_and_not_one_that_begins_alike() -> None:
    assert {
        "TORCHINDUCTOR_MAX_AUTOTUNE",
        "TORCH_LOGS",
        "OMP_NUM_THREADS",
        "PYTORCH_CUDA_ALLOC_CONF",
    } <= SWITCHES
    assert SWITCHES.isdisjoint(
        {"TORCHINDUCTOR_PASSPHRASE", "TORCHINDUCTOR_REDIS_URL", "TORCH_HOME", "KGPROF_NOTE"}
    )
    assert [
        name
        for name in SWITCHES
        if re.search("PASS(?!ES)|PWD|SECRET|TOKEN|(?<!MON)KEY|AUTH|HOST|URL", name)
    ] == []


FOREIGN = json.loads(Path(__file__).with_name("foreign_canaries.json").read_text("utf-8"))


def test_of_forty_foreign_canaries_as_many_go_as_in_the_first_run() -> None:
    """One for each of 40 rules of gitleaks (b58d3f1, seed 20261122), drawn after the rules here
    were written.

    The first run is what ``found_first`` says: 33 of 40. Those that passed have a shape that no
    rule here knows, and stand in no name that tells; one of the 40 (freemius) is no secret that
    gitleaks' own rule would find in its place.
    """
    redactor = Redactor(PrivateNames(users=(), hosts=(), homes=()))
    first = {row["rule"] for row in FOREIGN if row["found_first"]}

    gone = {
        row["rule"]
        for row in FOREIGN
        if row["halves"][1] not in redactor(row["text"] % "".join(row["halves"]))
    }

    assert len(FOREIGN) == 40
    assert len(first) == 33
    assert gone >= first


def test_a_value_that_a_string_puts_on_the_next_line_goes() -> None:
    """As a log of `repr` or of JSON has it: backslash and n stand for the end of the line."""
    text = r"<key>password</key>\n\t<string>hunter2hunter</string>"

    assert "hunter2" not in without_secrets(text, Counter())


@pytest.mark.parametrize(
    "text",
    [
        "value of pw: expected 'hunter2hunter'",
        "value of pw: expected 'a', got 'hunter2hunter', used in line 3",
        "value of self.cfg['password']: expected 'hunter2hunter'",
    ],
)
def test_a_guard_in_our_own_words_names_no_secret(text: str) -> None:
    assert "hunter2" not in without_secrets(text, Counter())


def test_other_guards_in_our_own_words_stay() -> None:
    for text in ("value of mode: expected 'train', got 'eval'", "value of n: expected 2, got 3"):
        assert without_secrets(text, Counter()) == text


@pytest.mark.parametrize("length", [511, 512, 513, 5_000, 100_000])
def test_a_long_value_is_hidden_to_its_end(length: int) -> None:
    value = ("k8Vq2mZx7Rw4" * length)[:length]

    assert without_secrets(f"token={value}, and more", Counter()) == "token=<secret>, and more"
