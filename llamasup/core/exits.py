"""What an end means: exit status and last lines → cause and one line for people.

llama-server ends with code 1 for every ordinary error, so its last lines decide. Only what no retry
can mend counts as `Cause.CONFIG`; a missing model does not: its file system may be away for now.
"""

import re
import signal
from collections.abc import Sequence

from llamasup.core.model import Cause, Exit

HOPELESS = (
    re.compile(r"error: invalid argument: .*"),
    re.compile(r"error: .*the argument has been removed.*"),
    re.compile(r"error while handling argument .*"),
    re.compile(r"error while handling environment variable .*"),
    re.compile(r"n_seq_max must be <= \d+"),
    re.compile(r"invalid device.*"),
)
TELLING = (
    re.compile(r"failed to open GGUF file .*"),
    re.compile(r"failed to read magic.*"),
    re.compile(r"invalid magic characters.*"),
    re.compile(r"failed to read key-value pairs.*"),
    re.compile(r"tensor .* data is not within the file bounds.*"),
    re.compile(r"unknown model architecture.*"),
    re.compile(r"couldn't bind HTTP server socket.*"),
    re.compile(r"failed to allocate buffer.*"),
    re.compile(r"read error: .*"),
    re.compile(r"GGML_ASSERT.*"),
    re.compile(r".*out of memory.*", re.IGNORECASE),
    re.compile(r"error: .*"),
)


def classify(code: int | None, signum: int | None, tail: Sequence[str]) -> Exit:
    """Return the `Exit` of a process that was not asked to end; *tail* are its last lines."""
    how = f"exit code {code}" if signum is None else f"killed by {signal_name(signum)}"
    hopeless = _last_match(HOPELESS, tail) if signum is None else None
    if hopeless is not None:
        return Exit(code, signum, Cause.CONFIG, f"{how}: {hopeless}")
    telling = _last_match(TELLING, tail) if code != 0 else None
    return Exit(code, signum, Cause.CRASH, f"{how}: {telling}" if telling else how)


def signal_name(signum: int) -> str:
    """Return ``SIGSEGV`` for 11; the number for a signal without a name."""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def _last_match(patterns: Sequence[re.Pattern[str]], tail: Sequence[str]) -> str | None:
    for pattern in patterns:
        for line in reversed(tail):
            match = pattern.search(line)
            if match is not None:
                return match.group().strip()[:300]
    return None
