"""What this machine and its user are called, so that the Profile can leave it out."""

import contextlib
import os
import platform
from collections.abc import Iterable
from pathlib import Path

from kgprof import model as m
from kgprof.record.ground.flags import Variables


def private_names(environment: Variables = os.environ) -> m.PrivateNames:
    """Whatever is known of the account that runs this process: a container may have neither a name
    nor a home."""
    try:
        home = str(Path.home())
    except RuntimeError:  # neither HOME nor an entry for this account
        home = ""
    users = [environment.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")]
    with contextlib.suppress(ImportError, KeyError):  # Windows; an account without an entry
        import pwd

        # No variable has it where nobody logged in (a container, a service).
        users.append(pwd.getpwuid(os.getuid()).pw_name)
    hosts = (platform.node(), environment.get("HOSTNAME", ""))
    homes = _named((environment.get("HOME", ""), home))
    folders = (
        os.path.abspath(one) for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one
    )
    # Of one above the homes, what lies in it would be named with its owner.
    above = [*homes, "/home/", "/Users/"]
    folders = (
        one for one in folders if not any(each.startswith(f"{one.rstrip('/')}/") for each in above)
    )
    return m.PrivateNames(
        users=_named(users), hosts=_named(hosts), homes=homes, import_folders=_named(folders)
    )


def _named(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name))
