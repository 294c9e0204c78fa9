"""From the models of the file to the values the daemon works with. Pure."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from llamasup.config import rules
from llamasup.config.args import Args, check_args, merge, slot_context, to_argv
from llamasup.config.options import FALLBACK, Options
from llamasup.config.problem import Finding, KeyPath, Level
from llamasup.config.schema import Backend, Defaults, FileModel, Instance, PolicyKeys
from llamasup.config.spec import (
    AdminConf,
    InstanceConf,
    Policy,
    RestartPolicy,
    Settings,
    Spec,
)

OUR_ARGS: Mapping[str, Any] = {
    "ctx-size": 0,
    "cache-ram": 0,  # llama-server would take 8 GiB of memory for each process
    "load-mode": "none",  # once loaded, a lost file system does not matter
    "sse-ping-interval": 5,  # seconds; bounds how long a stream can delay the end of the process
    "metrics": True,
}
"""What llamasup asks of every llama-server unless the file says otherwise."""

Known: TypeAlias = Mapping[str, Options]
"""The options of each binary that was asked, by its path."""


@dataclass(frozen=True, slots=True)
class Outside:
    """What the file alone does not say: secrets, the lowest port that we may listen on."""

    api_keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    token: str | None = field(default=None, repr=False)
    lowest_port: int = 1
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """One resolved instance, with what it takes to try it and to name the keys of its parts."""

    conf: InstanceConf
    binary_key: KeyPath
    args: Args
    options: Options
    own_argv: tuple[str, ...]

    def argv_without(self, keys: Container[KeyPath]) -> tuple[str, ...]:
        """Return the command line less what ``args`` say at *keys*."""
        kept = {name: arg for name, arg in self.args.items() if arg.key not in keys}
        return (*self.own_argv, *to_argv(kept, self.options))


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings as far as they could be made, and everything that is wrong with them."""

    settings: Settings
    launches: tuple[Launch, ...]
    findings: tuple[Finding, ...]


def resolve(model: FileModel, outside: Outside, known: Known) -> Resolved:
    """Resolve every instance of *model*; a binary that is not in *known* has the usual options."""
    findings = [
        *rules.check_names(model, model.daemon.runtime_dir),
        *rules.check_admin_socket(model),
        *rules.check_aliases(model),
        *rules.check_addresses(model, outside.lowest_port),
        *rules.check_backend(model, ("defaults", "backend"), model.defaults.backend),
        *_check_layers(model),
    ]
    launches: list[Launch] = []
    for name, instance in model.instances.items():
        launch, found = _launch(name, instance, model, outside, known)
        findings += found
        launches += [launch] if launch is not None else []
    settings = Settings(
        runtime_dir=model.daemon.runtime_dir,
        state_dir=model.daemon.state_dir,
        log_dir=model.daemon.log_dir,
        log_level=model.daemon.log_level,
        timezone=model.daemon.timezone,
        admin=AdminConf(
            socket=model.admin.socket or f"{model.daemon.runtime_dir}/admin.sock",
            listen=model.admin.listen,
            token=outside.token,
        ),
        instances=tuple(launch.conf for launch in launches),
        files=outside.files,
    )
    return Resolved(settings, tuple(launches), tuple(dict.fromkeys(findings)))


def _check_layers(model: FileModel) -> Iterable[Finding]:
    for name, backend in model.backends.items():
        yield from rules.check_env(("backends", name, "env"), backend.env)
        if backend.binary is not None and model.defaults.binary is not None:
            text = "is hidden by defaults.binary, which is nearer: remove one of them"
            yield Finding(("backends", name, "binary"), text, Level.WARNING)
    yield from rules.check_env(("defaults", "env"), model.defaults.env)
    for name, instance in model.instances.items():
        yield from rules.check_env(("instances", name, "env"), instance.env)


def _launch(
    name: str, instance: Instance, model: FileModel, outside: Outside, known: Known
) -> tuple[Launch | None, list[Finding]]:
    key = ("instances", name)
    chosen = instance.backend or model.defaults.backend
    backend = model.backends.get(chosen or "", Backend())
    binary, binary_key = _nearest_binary(name, instance, model.defaults, chosen or "", backend)
    findings = [*rules.check_backend(model, (*key, "backend"), instance.backend)]
    if binary is None:
        return None, findings or _no_binary(key, chosen, model)
    options = known.get(binary, FALLBACK)
    args, twice = merge(_args_layers(name, instance, model, options), options)
    kind = rules.kind_of(instance, args)
    findings += [
        *twice,
        *check_args(args, options),
        *rules.check_kind(key, kind, args),
        *rules.check_context(key, instance, args),
        *_check_policy(key, model.defaults, instance),
    ]
    aliases = tuple(dict.fromkeys((name, *instance.alias)))
    own_argv = (binary, *_own_argv(instance, aliases))
    spec = Spec(
        name=name,
        argv=(*own_argv, *to_argv(args, options)),
        env=tuple(sorted(_env(backend, model.defaults, instance).items())),
        kind=kind,
        model=instance.model,
        aliases=aliases,
        parallel=instance.parallel,
        slot_context=slot_context(args, instance.parallel),
        nice=instance.nice,
        oom_score_adj=instance.oom_score_adj,
        api_key=outside.api_keys.get(name),
    )
    conf = InstanceConf(name, instance.listen, spec, policy_of(model.defaults, instance))
    return Launch(conf, binary_key, args, options, own_argv), findings


def _nearest_binary(
    name: str, instance: Instance, defaults: Defaults, chosen: str, backend: Backend
) -> tuple[str | None, KeyPath]:
    if instance.binary is not None:
        return instance.binary, ("instances", name, "binary")
    if defaults.binary is not None:
        return defaults.binary, ("defaults", "binary")
    return backend.binary, ("backends", chosen, "binary")


def _no_binary(key: KeyPath, backend: str | None, model: FileModel) -> list[Finding]:
    if backend is not None and backend not in model.backends:
        return []  # told at the key that names the backend
    if backend is None and model.backends:
        text = f'is missing: write backend = "{next(iter(model.backends))}" in [defaults]'
        return [Finding((*key, "backend"), text)]
    place = f"[backends.{backend}]" if backend else "[defaults]"
    text = f'is missing: write binary = "/…/llama-server" in {place}'
    return [Finding((*key, "binary"), text)]


def _args_layers(
    name: str, instance: Instance, model: FileModel, options: Options
) -> list[tuple[KeyPath, Mapping[str, Any]]]:
    ours = {option: value for option, value in OUR_ARGS.items() if not options.lacks(option)}
    chosen = instance.backend or model.defaults.backend or ""
    backend = model.backends.get(chosen, Backend())
    return [
        (("instances", name, "args"), ours),
        (("backends", chosen, "args"), backend.args),
        (("defaults", "args"), model.defaults.args),
        (("instances", name, "args"), instance.args),
    ]


def _env(backend: Backend, defaults: Defaults, instance: Instance) -> dict[str, str]:
    return {**backend.env, **defaults.env, **instance.env}


def _own_argv(instance: Instance, aliases: tuple[str, ...]) -> list[str]:
    """Return what the file cannot say in ``args``."""
    argv = ["--model", instance.model, "--alias", ",".join(aliases)]
    argv += ["--parallel", str(instance.parallel), "--slots"]
    return argv + (["--api-key-file", instance.api_key_file] if instance.api_key_file else [])


_POLICY_KEYS = frozenset(PolicyKeys.model_fields) - {"restart"}


def policy_of(defaults: PolicyKeys, own: PolicyKeys) -> Policy:
    """Return the policy: *own* keys, else those of *defaults*, else the built-in ones."""
    values = {**_given(defaults), **_given(own)}
    return Policy(**values, restart=RestartPolicy(**_restart_given(defaults, own)))


def _given(keys: PolicyKeys) -> dict[str, Any]:
    return keys.model_dump(include=set(_POLICY_KEYS), exclude_none=True)


def _restart_given(*layers: PolicyKeys) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for layer in layers:
        if layer.restart is not None:
            given |= layer.restart.model_dump(exclude_none=True)
    return given


def _check_policy(key: KeyPath, defaults: Defaults, instance: Instance) -> Iterable[Finding]:
    policy = policy_of(defaults, instance)
    where = key if instance.restart is not None else ("defaults",)
    if policy.restart.max_delay < policy.restart.delay:
        yield Finding((*where, "restart", "max_delay"), "is less than delay: write at least that")
    if policy.restart.window <= 0:
        yield Finding((*where, "restart", "window"), 'must be more than "0s": write "10m"')
    for name, value in (
        ("load_stall_timeout", policy.load_stall_timeout),
        ("load_timeout", policy.load_timeout),
        ("kill_timeout", policy.kill_timeout),
    ):
        if value <= 0:
            owner = key if name in instance.model_fields_set else ("defaults",)
            yield Finding((*owner, name), 'must be more than "0s": write "1m"')
