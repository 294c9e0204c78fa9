"""The demo: a config of four instances, the daemon on it, and what to type next.

Started by scripts/demo. The daemon and its private folder belong to a keeper
(scripts/demo_keeper.py), which cleans up however this program ends.
"""

import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent  # of .venv
TINY_LIMIT = 120.0  # seconds until all are ready; the tiny model needs less than one
LOAD_LIMIT = 3600.0
ENOUGH_TRIES = 3  # ends before the demo gives up; the daemon itself never does
LONGEST_FOLDER = 60  # bytes; the unix sockets in it may have 107 in all

CONFIG = """\
# Written by scripts/demo: the file of the home lab in small. etc/ has explained examples.
[daemon]
runtime_dir = {run}
state_dir = {state}
log_dir = {logs}

[admin]
socket = {admin}

[backends.demo]
binary = {binary}

[defaults]
backend = "demo"
args = {{ ctx-size = 2048, load-mode = "mmap" }}  # mmap: two servers share one copy in memory

[instances.chat]
listen = "127.0.0.1:{chat}"
model = {model}
alias = ["demo-chat"]

[instances.cpu-a]
listen = "127.0.0.1:{cpu-a}"
model = {tiny}
alias = ["demo-cpu-a"]
args = {{ threads = 1 }}

[instances.cpu-b]
listen = "127.0.0.1:{cpu-b}"
model = {tiny}
alias = ["demo-cpu-b"]
args = {{ threads = 1 }}

[instances.embed]
listen = "127.0.0.1:{embed}"
model = {model}
alias = ["demo-embed"]
kind = "embedding"
args = {{ embeddings = true, pooling = "mean" }}
"""

PORTS = {"chat": 1234, "cpu-a": 1236, "cpu-b": 1237, "embed": 1238}  # those of the home lab


class DemoError(Exception):
    """The demo cannot go on; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Server:
    """The llama-server to show. *model* is served by chat and embed, *tiny* by the other two."""

    binary: Path
    model: Path
    tiny: Path


def say(text: str = "") -> None:
    """Print *text* at once, also into a pipe."""
    print(text, flush=True)


def find_binary() -> Path | None:
    """Return a real llama-server that is there already, or None."""
    command: list[str | Path] = [ROOT / "scripts" / "build-llama-server", "--find"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    binary = Path(done.stdout.strip())
    if not os.access(binary, os.X_OK):
        raise DemoError(f"cannot run {binary}: LLAMASUP_LLAMA_SERVER names no program")
    return binary


def build_binary() -> Path:
    """Build a real llama-server (minutes, its progress is shown) and return it."""
    command: list[str | Path] = [ROOT / "scripts" / "build-llama-server"]
    # Its own group, so that a compiler at work does not outlive us.
    build = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        output, _ = build.communicate()
    except BaseException:
        os.killpg(build.pid, signal.SIGTERM)
        raise
    if build.returncode != 0:
        raise DemoError("cannot build a llama-server: see above")
    return Path(output.strip())


def tiny_model() -> Path:
    """Return the generated model (under 1 MB), made once and kept in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llamasup"
    model = cache / "tiny-1.gguf"
    if not model.exists():
        say("writing the tiny model (once) ...")
        subprocess.run([ROOT / "scripts" / "setup", "--model"], check=True)
        cache.mkdir(parents=True, exist_ok=True)
        part = cache / f"tiny-1.{os.getpid()}.part"
        subprocess.run([BIN / "python", ROOT / "scripts" / "make-tiny-gguf", part], check=True)
        part.replace(model)
    return model


def choose_server(model: Path | None, build: bool) -> Server | None:
    """Find the real server and its models; None = there is none."""
    binary = find_binary() or (build_binary() if build else None)
    if binary is None and model is not None:
        raise DemoError(
            f"{model} needs a real llama-server and there is none: put one on PATH, set "
            "LLAMASUP_LLAMA_SERVER=/path/to/llama-server, or add --real to build one (some minutes)"
        )
    if binary is None:
        return None
    say(f"llama-server: {binary}")
    tiny = tiny_model()
    return Server(binary, model or tiny, tiny)


def fake_server(folder: Path) -> Server:
    """Say aloud that the shipped fake stands in, and return it."""
    say("No llama-server here, so this is the FAKE one that llamasup is tested with: it makes its")
    say("answers up. To see a real one: scripts/demo --real (builds it once, some minutes), or put")
    say("llama-server on PATH, or set LLAMASUP_LLAMA_SERVER=/path/to/llama-server.")
    stand_in = folder / "fake.gguf"
    stand_in.write_bytes(b"GGUF")
    return Server(BIN / "llamasup-fake-server", stand_in, stand_in)


def is_free(port: int) -> bool:
    """Tell whether *port* can be bound on loopback now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose_ports() -> dict[str, int]:
    """Return a free port for each instance, those of the home lab where they are free."""
    chosen = {}
    with contextlib.ExitStack() as taken:
        for name, port in PORTS.items():
            if is_free(port):
                chosen[name] = port
                continue
            other = taken.enter_context(socket.socket())  # kept until all are chosen: no port twice
            other.bind(("127.0.0.1", 0))
            chosen[name] = other.getsockname()[1]
            say(f"port {port} is taken: {name} listens on {chosen[name]} instead")
    return chosen


def make_folder() -> Path:
    """Make the demo's private folder, where its path is short enough for unix sockets."""
    for parent in (tempfile.gettempdir(), "/tmp"):
        if len(os.fsencode(parent)) <= LONGEST_FOLDER:
            return Path(tempfile.mkdtemp(prefix="llamasup-demo-", dir=parent))
    raise DemoError("cannot find a temporary folder with a short path: set TMPDIR to one")


def write_config(folder: Path, server: Server, ports: dict[str, int]) -> Path:
    """Write the file of the demo and return its path."""
    paths = {
        "run": folder / "run",
        "state": folder / "state",
        "logs": folder / "logs",
        "admin": folder / "admin.sock",
        "binary": server.binary,
        "model": server.model,
        "tiny": server.tiny,
    }
    for name in ("run", "state", "logs"):
        paths[name].mkdir(mode=0o700)
    # A JSON string is a TOML string too.
    words = {name: json.dumps(str(path), ensure_ascii=False) for name, path in paths.items()}
    path = folder / "llamasup.toml"
    path.write_text(CONFIG.format(**words, **ports), encoding="utf-8")
    return path


def ctl(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run llamasupctl against the demo's daemon and return what it said."""
    command: list[str | Path] = [BIN / "llamasupctl", "--socket", folder / "admin.sock", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def log_tail(folder: Path) -> str:
    """Return the last lines of the daemon's log."""
    try:
        lines = (folder / "daemon.log").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(f"  | {line}" for line in lines[-15:])


def has_ended(folder: Path) -> bool:
    """Tell whether the daemon has ended although nobody asked it to."""
    return (folder / "ended").exists()


def wait_until_ready(folder: Path, limit: float) -> None:
    """Show each change of phase until all instances are ready; *limit* in seconds."""
    shown: dict[str, str] = {}
    began = time.monotonic()
    while time.monotonic() - began < limit:
        if has_ended(folder):
            raise DemoError(f"the daemon ended at once; its last lines:\n{log_tail(folder)}")
        status = ctl(folder, "--json", "status")
        rows = json.loads(status.stdout)["instances"] if status.returncode == 0 else []
        for row in rows:
            text = row["phase"] + (f": {row['reason']}" if row["reason"] else "")
            if shown.get(row["name"]) != text:
                say(f"  {time.monotonic() - began:5.1f} s  {row['name']:<6} {text}")
                shown[row["name"]] = text
            hopeless = row["phase"] == "backoff" and row["restarts"] >= ENOUGH_TRIES
            if row["phase"] == "failed" or hopeless:
                raise DemoError(f"{row['name']} cannot run:\n{log_tail(folder)}")
        if rows and all(row["phase"] == "ready" for row in rows):
            return
        time.sleep(0.2)
    raise DemoError(f"not ready after {limit:.0f} s; the daemon's last lines:\n{log_tail(folder)}")


def post(url: str, body: dict[str, Any]) -> Any:
    """Send *body* as JSON and return the JSON answer."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback: no proxy
    try:
        with opener.open(request, timeout=120) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as exc:
        raise DemoError(
            f"{url} answered {exc.code}: {exc.read().decode(errors='replace')}"
        ) from exc
    except OSError as exc:
        raise DemoError(f"cannot ask {url}: {exc}") from exc


CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 24}
EMBED = {"input": "Hello"}


def check(ports: dict[str, int]) -> None:
    """Ask for one chat answer and one vector through the public ports and show them."""
    url = f"http://127.0.0.1:{ports['chat']}/v1/chat/completions"
    answer = post(url, CHAT)
    try:
        text = answer["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError) as exc:
        raise DemoError(f"no chat answer in {answer}") from exc
    say(f"\nPOST {url}\n  {text!r}")
    url = f"http://127.0.0.1:{ports['embed']}/v1/embeddings"
    answer = post(url, EMBED)
    try:
        vector = answer["data"][0]["embedding"]
    except (KeyError, IndexError, TypeError) as exc:
        raise DemoError(f"no vector in {answer}") from exc
    numbers = ", ".join(f"{number:.4f}" for number in vector[:4])
    say(f"POST {url}\n  {len(vector)} numbers: {numbers} ...")
    if not vector or not isinstance(text, str):
        raise DemoError("an answer is empty")


def show_what_to_type(folder: Path, ports: dict[str, int], is_tiny: bool) -> None:
    """Print lines that are ready to paste."""
    as_json = "-H 'Content-Type: application/json' -d"
    chat = f"http://127.0.0.1:{ports['chat']}/v1/chat/completions"
    embed = f"http://127.0.0.1:{ports['embed']}/v1/embeddings"
    say("\nAsk it, in another terminal:")
    say(f"  curl {chat} {as_json} '{json.dumps(CHAT)}'")
    say(f"  curl -N {chat} {as_json} '{json.dumps({**CHAT, 'stream': True})}'")
    say(f"  curl {embed} {as_json} '{json.dumps(EMBED)}'")
    say("Look after it (kill the pid that status shows, and ask again at once):")
    control = shlex.join([str(BIN / "llamasupctl"), "--socket", str(folder / "admin.sock")])
    for words in ("status", "logs chat", "restart chat", "events -f"):
        say(f"  {control} {words}")
    if is_tiny:
        say("The tiny model has random weights, so it talks nonsense: scripts/demo MODEL.gguf")
    say("\nCtrl-C stops everything.")


def start_keeper(folder: Path, config: Path) -> subprocess.Popen[bytes]:
    """Start the daemon under a keeper that stops it and removes *folder* once we are gone."""
    keeper: list[str | Path] = [sys.executable, ROOT / "scripts" / "demo_keeper.py", folder]
    daemon: list[str | Path] = [BIN / "llamasup", "--config", config]
    # Its own session: Ctrl-C reaches us alone, and the end of our pipe ends the keeper.
    return subprocess.Popen([*keeper, *daemon], stdin=subprocess.PIPE, start_new_session=True)


def show(folder: Path, ports: dict[str, int], args: argparse.Namespace, is_tiny: bool) -> None:
    """Show the running daemon: until Ctrl-C, or with --check until both answers are there."""
    wait_until_ready(folder, LOAD_LIMIT if args.model else TINY_LIMIT)
    say("\n" + ctl(folder, "status").stdout.rstrip())
    if args.check:
        check(ports)
        return
    show_what_to_type(folder, ports, is_tiny)
    while not has_ended(folder):
        time.sleep(0.5)
    raise DemoError(f"the daemon ended by itself; its last lines:\n{log_tail(folder)}")


def run(args: argparse.Namespace) -> None:
    """Choose what to run, run it, and leave nothing behind."""
    model = Path(args.model).absolute() if args.model else None
    if model is not None and not model.is_file():
        reason = "not a file but a folder" if model.is_dir() else "no such file"
        raise DemoError(f"cannot serve {model}: {reason}")
    real = choose_server(model, args.real)
    ports = choose_ports()
    folder = make_folder()
    try:
        server = real or fake_server(folder)
        config = write_config(folder, server, ports)
        keeper = start_keeper(folder, config)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    try:
        say(f"config: {config}")
        show(folder, ports, args, is_tiny=real is not None and model is None)
    finally:
        say("stopping ...")
        keeper.communicate()  # closes the pipe


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description="Show llamasup at work.")
    parser.add_argument("--check", action="store_true", help="two requests, then stop")
    parser.add_argument("--real", action="store_true", help="build a llama-server if there is none")
    parser.add_argument("model", metavar="MODEL", nargs="?", help="a .gguf file to serve")
    return parser.parse_args()


def interrupt(_signal: int, _frame: object) -> None:
    """Turn SIGTERM and SIGHUP into the same ending as Ctrl-C."""
    raise KeyboardInterrupt


def main() -> int:
    """Run the demo; 0 = all that was asked for was seen, 1 = not, with the reason."""
    args = parse()
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGHUP, interrupt)
    try:
        run(args)
    except (DemoError, subprocess.CalledProcessError, OSError) as exc:
        print(f"demo: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130 if args.check else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
