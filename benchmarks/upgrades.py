"""Does `kgprof compare --record` with two interpreters name what a planted upgrade changed?

    python benchmarks/upgrades.py -o FILE.json            # all
    python benchmarks/upgrades.py CASE ... -o FILE.json   # these take their place

A is a thin environment that sees the packages of the Python that runs this; B is another one, in
which a module that every Python of it imports on its start changes torch: a default, a
decomposition, a pass, an operator's kernel. The versions and the program (same_work's encoder) are
the same on both sides. A case is right if the first sentence says that the code is the same, one of
the first FIRST causes or differences has the case's words, and no line is said to have changed.
Case "nothing" plants none, and is right if the work is the same. So are three that plant a setting
which this program does not depend on: `torch._inductor.utils.run_and_get_code` returns the same
code with and without each. Exit code 0: all are right; 1: not.
"""

import argparse
import json
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path
from typing import Any, NamedTuple

from same_work.cases import HERE
from same_work.run import LAST_COLUMNS, run

FIRST = 3
PROGRAM = HERE / "programs" / "encoder.py"
Row = dict[str, Any]


class Case(NamedTuple):
    words: str  # that the report must say; empty: that nothing differs
    planted: str  # Python


CASES = {
    "nothing": Case("", ""),
    "fusions-of-one": Case(
        "inductor.max_fusion_size",
        "import torch._inductor.config as config; config.max_fusion_size = 1",
    ),
    "no-vectors": Case(
        "inductor.cpp.simdlen",
        "import torch._inductor.config as config; config.cpp.simdlen = 1",
    ),
    "dynamic-by-default": Case(
        "dynamo.assume_static_by_default",
        "import torch._dynamo.config as config; config.assume_static_by_default = False",
    ),
    "realised-early": Case(
        "inductor.realize_opcount_threshold",
        "import torch._inductor.config as config; config.realize_opcount_threshold = 1",
    ),
    "modules-not-guarded": Case(
        "",
        "import torch._dynamo.config as config; config.guard_nn_modules = False",
    ),
    "gelu-not-decomposed": Case(
        "decomposition of aten.gelu.default",
        "import torch; from torch._inductor.decomposition import decompositions; "
        "del decompositions[torch.ops.aten.gelu.default]",
    ),
    "modules-not-inlined": Case(  # torch 2.13 ignores it
        "",
        "import torch._dynamo.config as config; config.inline_inbuilt_nn_modules = False",
    ),
    "no-patterns": Case(
        "",
        "from torch._inductor.pattern_matcher import PatternMatcherPass; "
        "PatternMatcherPass.apply = lambda self, graph: 0",
    ),
    "slow-addmm": Case(
        "aten::baddbmm",
        """
import torch
aten = torch.library.Library("aten", "IMPL")
def addmm(bias, one, other, *, beta=1, alpha=1, out):
    bias = bias.expand(1, one.shape[0], other.shape[1])
    for _ in range(3):
        found = torch.baddbmm(bias, one[None], other[None], beta=beta, alpha=alpha)
    return out.copy_(found[0])
aten.impl("addmm.out", addmm, "CPU")
""",
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="CASE", choices=[[], *CASES])
    parser.add_argument("-o", "--output", type=Path, required=True)
    asked = parser.parse_args()
    found = {}
    if asked.output.is_file():
        found = json.loads(asked.output.read_text(encoding="utf-8"))["cases"]
    chosen = asked.names or [*CASES]
    for name in chosen:
        found[name] = row = compared(CASES[name])
        print(f"{name:<22} {row['mark']:<10} {row['said']}", file=sys.stderr, flush=True)
        whole = {
            "command": "python benchmarks/upgrades.py",
            "environment": row["environment"],
            "cases": {each: found[each] for each in CASES if each in found},
        }
        asked.output.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    right = sum(found[name]["mark"] == "right" for name in chosen)
    print(f"{right} of {len(chosen)} right")
    return int(right < len(chosen))


def compared(case: Case) -> Row:
    with tempfile.TemporaryDirectory(prefix="upgrade-") as scratch:
        folder = Path(scratch)
        (folder / "program").mkdir()
        (folder / "program" / PROGRAM.name).write_bytes(PROGRAM.read_bytes())
        base = environment(folder / "base", "")
        head = environment(folder / "head", case.planted)
        report = folder / "report.json"
        command = [
            *(sys.executable, "-m", "kgprof", "compare", "--record", ".", "."),
            *(f"{PROGRAM.name}:step", "--python", str(base), "--python", str(head)),
            *("--work-only", "--no-ci", "-o", str(folder / "out"), f"--format=json={report}"),
        ]
        done = run(command, folder / "program")
        told = json.loads(report.read_text(encoding="utf-8")) if report.is_file() else {}
    row: Row = {"words": case.words, "exit_code": done.returncode, "mark": "no answer"}
    if not told:
        return row | {"said": done.stdout[-LAST_COLUMNS:], "environment": {}}
    comparison = told["comparison"]
    causes = comparison.get("causes", [])
    differences = [
        each for one in comparison["runs"] for each in one["work"].get("differences", ())
    ]
    texts = [each["text"] for each in (*causes[:FIRST], *differences[:FIRST])]
    blamed = [each for each in (*causes, *differences) if each.get("changed")]
    sentence = told["verdict"]["text"]
    if case.words:
        right = any(case.words in text for text in texts) and "same code" in sentence
    else:
        right = "the same work" in sentence and not differences
    return row | {
        "mark": "right" if right and not blamed else "wrong",
        "said": sentence,
        "causes": [each["text"] for each in causes[:FIRST]],
        "differences": [each["text"] for each in differences[:FIRST]],
        "environment": {
            name: told["environment"][name] for name in ("torch", "python", "cpu_name", "cpu_count")
        },
    }


def environment(folder: Path, planted: str) -> Path:
    """The Python of a thin environment that imports ``planted`` on its start."""
    venv.create(folder, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    lines = [sysconfig.get_path("purelib")]
    if planted:
        (packages / "planted_upgrade.py").write_text(planted, encoding="utf-8")
        lines.append("import planted_upgrade")
    (packages / "planted.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "bin" / "python"


if __name__ == "__main__":
    sys.exit(main())
