"""What the threads of a process are doing below Python: through py-spy or gdb, where one of them is
installed."""

import shutil
import subprocess

from kgprof import model as m

LOOKED_S = 30.0  # gdb reads the symbols of torch's libraries first
_CHARS = 60_000
TOOLS = {
    "py-spy": ("dump", "--native", "--nonblocking", "--pid"),
    "gdb": (
        "-nx",
        "-batch",
        "-ex",
        "set print frame-arguments none",
        "-ex",
        "thread apply all backtrace 40",
        "-p",
    ),
}


def native_stacks(pid: int) -> str | m.Skipped:
    """The first tool's that answers. Skipped says why none did: both need the right to trace
    another process."""
    refused = []
    for name, options in TOOLS.items():
        program = shutil.which(name)
        if program is None:
            continue
        try:
            command = [program, *options, str(pid)]
            done = subprocess.run(
                command,
                capture_output=True,
                check=False,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                timeout=LOOKED_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            refused.append(f"{name}: {error}")
            continue
        if done.returncode == 0 and ("#0" in done.stdout or "Thread" in done.stdout):
            return done.stdout[-_CHARS:]
        refused.append(
            f"{name}: {next(iter(done.stderr.strip().splitlines()[-1:]), 'it wrote nothing')}"
        )
    return m.Skipped("; ".join(refused) or f"neither {' nor '.join(TOOLS)} is installed")
