"""Values that the tests of the core are made of."""

from dataclasses import replace

from llamasup.clock import Now
from llamasup.config.spec import Address, InstanceConf, Kind, Policy, RestartPolicy, Spec
from llamasup.core.model import Cause, Exit, Instance, Note, Phase, Up

RESTART = RestartPolicy(delay=1.0, max_delay=20.0, burst=3, window=100.0, stable=60.0)

POLICY = Policy(
    load_stall_timeout=10.0,
    load_timeout=25.0,
    drain_timeout=30.0,
    stop_timeout=15.0,
    stop_again_timeout=5.0,
    kill_timeout=8.0,
    hold_timeout=40.0,
    max_held=7,
    restart=RESTART,
)

CRASH = Exit(None, 11, Cause.CRASH, "killed by SIGSEGV")
MISCONFIGURED = Exit(1, None, Cause.CONFIG, "exit code 1: error: invalid argument: --x")


def spec(name: str = "chat", model: str = "a") -> Spec:
    path = f"/models/{model}.gguf"
    return Spec(name, ("/bin/llama-server", "-m", path), (), Kind.CHAT, path, ("alias",), 1)


def conf(name: str = "chat", model: str = "a", policy: Policy = POLICY) -> InstanceConf:
    return InstanceConf(name, Address("127.0.0.1", 1234), spec(name, model), policy)


def at(mono: float) -> Now:
    """Return the moment *mono*; the wall clock is 1,000,000 s ahead: no test can mix them."""
    return Now(mono, 1_000_000.0 + mono)


A = Up(spec(model="a"))
B = Up(spec(model="b"))


def instance(phase: Phase, **changes: object) -> Instance:
    """Return generation 3 of `chat`, launched for A at 50, in *phase* since 90 with *changes*."""
    inst = Instance("chat", POLICY, A, phase, gen=3, running=A, launched_at=50.0)
    inst = replace(inst, phase_wall=at(90.0).wall, reason="before")
    return replace(inst, **changes)  # type: ignore[arg-type]  # the tests name the fields


def phase_note(phase: Phase, reason: str, level: str = "info") -> Note:
    return Note("chat", "phase", f"{phase}: {reason}" if reason else phase, level)


def exit_note(detail: str, level: str = "warning") -> Note:
    return Note("chat", "exit", f"generation 3 ended: {detail}", level)
