"""Runs visibility-sync from Python and tells apart what is worth another try. Nothing but the standard library."""

import json
import os
import subprocess

COMMAND = os.environ.get("VISIBILITY_SYNC", "visibility-sync").split()


class Fatal(Exception):
    """Bad usage or configuration: another try would end the same way."""


class Busy(Exception):
    """Another run holds the lock: it is doing the work."""


class Incomplete(Exception):
    """Some or all of it failed, or something is held for review. What was loaded stays, and the next try goes on from there."""


def run(*args):
    """Gives the JSON document of a command that ended well."""
    done = subprocess.run([*COMMAND, *args, "--json"], stdout=subprocess.PIPE, text=True, check=False)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        report = {}
    if done.returncode == 0:
        return report
    reason = report.get("reason") or report.get("error") or f"exit code {done.returncode}; the log is on stderr"
    raise {2: Fatal, 3: Busy}.get(done.returncode, Incomplete)(f"visibility-sync {' '.join(args)}: {reason}")
