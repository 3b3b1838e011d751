"""The commits of the repository here, asked of git itself; nothing of it is changed."""

import subprocess
from collections.abc import Sequence

from kgprof.errors import UsageError

GIT_S = 120.0  # for a checkout of a large repository
GIT_FAILED = (OSError, subprocess.SubprocessError)


def git(*args: str) -> str:
    """What it prints. Raises one of GIT_FAILED."""
    done = subprocess.run(
        ["git", *args],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=GIT_S,
        check=True,
    )
    return done.stdout.strip()


def commit_of(given: str) -> str:
    """All digits of it. Raises one of GIT_FAILED."""
    return git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{given}^{{commit}}")


def ends(good: str, bad: str) -> tuple[str, str]:
    """All digits of both. Raises UsageError for what is no commit here, and where the first is the
    other or no ancestor of it."""
    found = []
    for name, given in (("GOOD", good), ("BAD", bad)):
        try:
            git("rev-parse", "--show-toplevel")
            found.append(commit_of(given))
        except GIT_FAILED as error:
            raise UsageError(
                f"{name} {given} is not a commit of a git work tree here",
                "give two commits, such as v1.0 HEAD; of a shallow clone: git fetch --unshallow",
            ) from error
    if found[0] == found[1]:
        raise UsageError(
            f"GOOD {good} and BAD {bad} are one commit", "give an older commit as GOOD"
        )
    if git("rev-list", "--count", "--ancestry-path", "..".join(found)) == "0":
        raise UsageError(
            f"GOOD {good} is not an ancestor of BAD {bad}",
            "GOOD is the older one; of a shallow clone: git fetch --unshallow",
        )
    return found[0], found[1]


def halving(bad: str, good: Sequence[str]) -> list[str]:
    """Every commit that may be the first bad one; the first of them leaves the fewest, by git's own
    reckoning, which knows merges."""
    listed = git("rev-list", "--bisect-all", bad, "--not", *good)
    return [line.partition(" ")[0] for line in listed.splitlines()]


def of_commit(commit: str, form: str) -> str:
    """``form``: as `git log --format` has it."""
    return git("log", "-1", "--no-show-signature", "--no-color", f"--format={form}", commit)


def changed_files(commit: str) -> tuple[str, ...]:
    """As seen from its first parent."""
    listed = git("diff-tree", "-r", "-z", "--name-only", f"{commit}^1", commit)
    return tuple(filter(None, listed.split("\0")))


def change_of_line(commit: str, place: str) -> str:
    """``place``: LINE,LINE:FILE as seen from the top; empty where the commit left it as it was."""
    top = git("rev-parse", "--show-toplevel")
    plain = ("--format=", "--no-show-signature", "--no-color", "--no-ext-diff", "--no-textconv")
    try:
        return git("-C", top, "log", "-1", *plain, f"-L{place}", f"{commit}^1..{commit}")
    except GIT_FAILED:  # it has no such line
        return ""
