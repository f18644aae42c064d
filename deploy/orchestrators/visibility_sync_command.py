"""Runs visibility-sync from Python and raises an error by exit code. Needs only the standard library."""

import json
import os
import subprocess

COMMAND = os.environ.get("VISIBILITY_SYNC", "visibility-sync").split()


class Fatal(Exception):
    """Exit 2: bad usage or configuration. A retry would end the same way."""


class Busy(Exception):
    """Exit 3: another run holds the lock and does the work. Not a failure: skip, do not retry."""


class Incomplete(Exception):
    """Exit 1: some or all of it failed, or something is held for review. What was loaded stays; a retry continues from there."""


def run(*args):
    """Returns the JSON document of a command that succeeded."""
    done = subprocess.run([*COMMAND, *args, "--json"], stdout=subprocess.PIPE, text=True, check=False)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        report = {}
    if done.returncode == 0:
        return report
    error = report.get("error") or {}
    reason = report.get("reason") or error.get("message") or f"exit code {done.returncode}; the log is on stderr"
    raise {2: Fatal, 3: Busy}.get(done.returncode, Incomplete)(f"visibility-sync {' '.join(args)}: {reason}")
