"""Orphans: processes whose parent, one of our children, ended before them, come to us."""

import contextlib
import ctypes
import os

from llamasup.child.lock import stat_fields
from llamasup.child.spawn import own_pids

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Make the orphans of our children our own children, not those of init."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans() -> list[int]:
    """Reap every dead child that nobody here has started, and return their pids.

    Cheap enough to be called after each end of a process, too dear for a tight loop: it walks
    through /proc. The processes of `Process` are left to their owners.
    """
    me = str(os.getpid())
    reaped = []
    for name in [entry.name for entry in os.scandir("/proc")]:
        if not name.isdigit() or int(name) in own_pids:
            continue
        fields = stat_fields(int(name))
        if fields[:2] != ["Z", me]:
            continue
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(int(name), os.WNOHANG)[0]:
                reaped.append(int(name))
    return reaped
