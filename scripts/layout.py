"""Check what no linter does: files stay short, and each module has its test file.

Usage: scripts/layout.py (from scripts/check; exit 1 with one line for each problem)
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 400  # lines

COVERED_ELSEWHERE = {
    "llamasup/__main__.py": "tests/e2e: the daemon is started as a process",
    "llamasup/daemon.py": "tests/e2e: the daemon is started as a process",
    "llamasup/adapters.py": "protocols, nothing that runs",
    "llamasup/clock.py": "nothing but the two clocks",
    "llamasup/errors.py": "nothing but names",
    "llamasup/admin/control.py": "a protocol, nothing that runs",
    "llamasup/config/spec.py": "values only",
    "llamasup/fake/api.py": "tests/contract: compared with the real server",
    "llamasup/fake/shapes.py": "tests/contract: compared with the real server",
    "llamasup/core/model.py": "values only",
    "llamasup/front/limits.py": "values only",
}


def tracked() -> list[Path]:
    """Return the files that git knows, or would know, less those that were deleted."""
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    return [Path(name) for name in names.split("\0") if name and (ROOT / name).is_file()]


def test_file(module: Path) -> Path:
    """Return where the tests of *module* belong: the same path under tests/."""
    inner = module.relative_to("llamasup")
    return Path("tests") / inner.parent / f"test_{inner.name}"


def problems(files: list[Path]) -> list[str]:
    """Return one sentence for each file that breaks a rule."""
    known = set(files)
    found = []
    for path in files:
        if path.suffix != ".py":
            continue
        lines = (ROOT / path).read_text(encoding="utf-8").count("\n")
        if lines > LONGEST:
            found.append(f"{path}: {lines} lines, at most {LONGEST} are allowed")
        is_module = path.parts[0] == "llamasup" and path.name != "__init__.py"
        if is_module and test_file(path) not in known and str(path) not in COVERED_ELSEWHERE:
            found.append(f"{path}: no {test_file(path)}, and not named in scripts/layout.py")
    found += [
        f"scripts/layout.py: {name} does not exist any more"
        for name in COVERED_ELSEWHERE
        if Path(name) not in known
    ]
    return found


def main() -> int:
    """Print the problems; return 1 if there are any."""
    found = problems(tracked())
    print("\n".join(found) or "layout: in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
