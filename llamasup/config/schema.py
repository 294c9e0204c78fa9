"""The models of the configuration file: every key, its form, its description. Pure.

What one value alone cannot tell (two instances on one port, an option the binary does not know) is
checked in ``resolve``.
"""

import ipaddress
import posixpath
from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from llamasup.config.complaints import complaint
from llamasup.config.problem import Finding, KeyPath
from llamasup.config.spec import Address, Kind, Policy, RestartPolicy
from llamasup.config.units import DURATION_PATTERN, format_duration, parse_duration

LISTEN_PATTERN = r"^(localhost|[0-9.]+|\[[0-9A-Fa-f:.]+\]):[0-9]+$"

_POLICY = Policy()
_RESTART = RestartPolicy()


def _duration(value: object) -> float:
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f'{value} has no unit: write it like "{value}s" or "{value}m"')
    raise ValueError('must be a duration: write it like "2s", "5m", "1h30m" or "500ms"')


def _address(value: object) -> Address:
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError(
            f'{value} names no address: write "127.0.0.1:{value}" or "0.0.0.0:{value}"'
        )
    if not isinstance(value, str):
        raise ValueError('must be an address and a port: write it like "127.0.0.1:1234"')
    host, colon, port = value.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise ValueError(f'"{value}" has no port: write it like "127.0.0.1:1234" or "[::]:1234"')
    if not 0 < int(port) <= 65535:
        raise ValueError(f'"{value}" has no usable port: write a port from 1 to 65535')
    return Address(_host(host, value), int(port))


def _host(host: str, value: str) -> str:
    if host == "localhost":
        return "127.0.0.1"
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ipaddress.ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        address = None
    if address is None or (address.version == 6) is not bracketed or "%" in host:
        raise ValueError(
            f'"{value}" does not start with an IP address: write it like "127.0.0.1:1234", '
            '"0.0.0.0:1234" or "[::1]:1234"'
        )
    return str(address)


def _absolute(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError(f'"{value}" is not an absolute path: write it from the root, like "/…"')
    if "\0" in value:
        raise ValueError("has a zero byte in it: write the path without it")
    return posixpath.normpath(value)


def _aliases(value: object) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list):
        raise ValueError('must be a name or a list of names: write it like ["qwen3-8b"]')
    for name in names:
        if not isinstance(name, str) or not name or name != name.strip() or not name.isprintable():
            raise ValueError(f'{name!r} is not a name: write names like ["qwen3-8b"]')
        if "," in name:
            raise ValueError(f'"{name}" has a comma in it: write a list, like ["qwen3-8b", "chat"]')
    return tuple(names)


Duration: TypeAlias = Annotated[
    float,
    PlainValidator(_duration),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "examples": ["2s", "1h30m"]}),
]
Listen: TypeAlias = Annotated[
    Address,
    PlainValidator(_address),
    WithJsonSchema({"type": "string", "pattern": LISTEN_PATTERN}),
]
AbsolutePath: TypeAlias = Annotated[
    str, AfterValidator(_absolute), WithJsonSchema({"type": "string", "pattern": "^/"})
]
SecretPath: TypeAlias = Annotated[
    str, AfterValidator(_absolute), WithJsonSchema({"type": "string", "pattern": r"^(/|\$\{)"})
]
"""``${NAME}`` in it is replaced before it is validated."""

Aliases: TypeAlias = Annotated[
    tuple[str, ...],
    PlainValidator(_aliases),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
_Env: TypeAlias = dict[str, str]
_Args: TypeAlias = dict[str, Any]  # each value is checked with the option it belongs to


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _say(text: str, default: float | None = None, example: object = None) -> Any:
    """Describe an optional key; *default* in seconds is told in the words of the file."""
    if default is not None:
        text = f"{text} Default: {format_duration(default)}."
    return Field(default=None, description=text, examples=None if example is None else [example])


class Restart(_Part):
    """When to start again after an end nobody asked for."""

    delay: Duration | None = _say(
        "Wait before the second restart in a row; doubled each time.", _RESTART.delay
    )
    max_delay: Duration | None = _say("Longest wait between two restarts.", _RESTART.max_delay)
    burst: Annotated[int, Field(ge=1)] | None = _say(
        f"Restarts within `window` after which only slow retries follow. Default: {_RESTART.burst}."
    )
    window: Duration | None = _say("Time in which `burst` restarts are counted.", _RESTART.window)
    stable: Duration | None = _say("Time alive that counts as a stable run.", _RESTART.stable)


class PolicyKeys(_Part):
    """How to watch an instance."""

    load_stall_timeout: Duration | None = _say(
        "Longest load without any progress (memory, reads, CPU time).", _POLICY.load_stall_timeout
    )
    load_timeout: Duration | None = _say("Longest load, whatever moves.", _POLICY.load_timeout)
    drain_timeout: Duration | None = _say(
        "Time that running requests get before a stop.", _POLICY.drain_timeout
    )
    stop_timeout: Duration | None = _say("First SIGTERM to the second.", _POLICY.stop_timeout)
    stop_again_timeout: Duration | None = _say(
        "Second SIGTERM to SIGKILL.", _POLICY.stop_again_timeout
    )
    kill_timeout: Duration | None = _say("SIGKILL to the state `stuck`.", _POLICY.kill_timeout)
    hold_timeout: Duration | None = _say(
        "Longest wait of a request while the instance is not ready.", _POLICY.hold_timeout
    )
    max_held: Annotated[int, Field(ge=0)] | None = _say(
        f"Requests that may wait at the same time. Default: {_POLICY.max_held}."
    )
    autostart: bool | None = _say("Start with the daemon. Default: true.")
    restart: Restart | None = _say("When to start again after a crash.")


class LaunchKeys(_Part):
    """What may stand in a backend, in the defaults and in an instance."""

    binary: AbsolutePath | None = _say(
        "Absolute path of llama-server. The nearest wins: instance, defaults, backend.",
        example="/opt/llama.cpp/bin/llama-server",
    )
    env: _Env = Field(
        default={},
        description="Environment variables of llama-server; merged key by key, the nearest wins.",
        examples=[{"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}],
    )
    args: _Args = Field(
        default={},
        description="Long option names of llama-server and their values: true = bare flag, false = "
        "left out (or --no-…), list = repeated, table = JSON. Merged key by key, the nearest wins.",
        examples=[{"ctx-size": 32768, "flash-attn": "on"}],
    )


class Backend(LaunchKeys):
    """A build of llama-server with its environment and options."""


class Defaults(LaunchKeys, PolicyKeys):
    """What every instance inherits."""

    backend: str | None = _say("The [backends.NAME] that is used where an instance names none.")


class Instance(Defaults):
    """One llama-server that is kept running."""

    listen: Listen = Field(
        description="Public address and port of this instance; llamasup owns it.",
        examples=["127.0.0.1:1234"],
    )
    model: AbsolutePath = Field(
        description="Absolute path of the GGUF file (the first file of a split model).",
        examples=["/mnt/models/model.gguf"],
    )
    alias: Aliases = Field(
        default=(), description="More names of the model, beside the name of the instance."
    )
    parallel: Annotated[int, Field(ge=1, le=256)] = Field(
        default=1, description="Slots: requests that are computed at the same time."
    )
    kind: Literal["chat", "embedding", "rerank"] | None = _say(
        "What it answers; decides the warm-up request. "
        "Default: rerank if `args` say so, else chat. "
        'An embedding-only model needs kind = "embedding".'
    )
    min_context: Annotated[int, Field(ge=1)] | None = _say(
        "Tokens that every slot must have at least; less is an error."
    )
    nice: Annotated[int, Field(ge=-20, le=19)] = Field(
        default=0, description="Scheduling priority of the process; higher is more modest."
    )
    oom_score_adj: Annotated[int, Field(ge=-1000, le=1000)] = Field(
        default=0, description="Who is killed first when memory runs out; higher is earlier."
    )
    api_key_file: SecretPath | None = _say(
        "File with the keys clients must send, one a line; "
        "${NAME} is replaced from the environment.",
        example="${CREDENTIALS_DIRECTORY}/chat-key",
    )

    def kind_of(self) -> Kind | None:
        """Return the kind if the file names one."""
        return None if self.kind is None else Kind(self.kind)


class Daemon(_Part):
    """The daemon itself."""

    timezone: str = Field(
        default="UTC", description="Time zone, such as Europe/Paris.", examples=["Europe/Paris"]
    )
    runtime_dir: AbsolutePath = Field(
        default="/run/llamasup", description="Sockets, locks (tmpfs)."
    )
    state_dir: AbsolutePath = Field(default="/var/lib/llamasup", description="What is remembered.")
    log_dir: AbsolutePath | None = _say("Log files of the instances; without it none are written.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="How much the daemon itself logs."
    )


class Admin(_Part):
    """The admin API."""

    socket: AbsolutePath | None = _say(
        "Unix socket of the admin API (mode 0660). Default: admin.sock in runtime_dir."
    )
    listen: Listen | None = _say(
        "TCP address of the admin API too; without it there is none.", example="127.0.0.1:9110"
    )
    token_file: SecretPath | None = _say(
        "File with the token that changes over TCP need; ${NAME} is replaced from the environment.",
        example="${CREDENTIALS_DIRECTORY}/admin-token",
    )


class FileModel(_Part):
    """Configuration of llamasup."""

    daemon: Daemon = Field(default=Daemon(), description="The daemon itself.")
    admin: Admin = Field(default=Admin(), description="The admin API.")
    backends: dict[str, Backend] = Field(default={}, description="Builds of llama-server.")
    defaults: Defaults = Field(default=Defaults(), description="What every instance inherits.")
    instances: dict[str, Instance] = Field(default={}, description="The llama-servers to run.")


@dataclass(frozen=True, slots=True)
class Parsed:
    """*model* holds what is right of the file, *findings* tell what is not."""

    model: FileModel
    findings: tuple[Finding, ...]


def parse(tree: dict[str, Any], *, complete: bool = True) -> Parsed:
    """Validate *tree*; a wrong value is told and replaced, so that the rest can be checked too.

    If the tree is not *complete* (a file of it could not be read), missing keys are not told.
    """
    tree = deepcopy(tree)
    findings: tuple[Finding, ...] = ()
    told = False
    while True:
        try:
            return Parsed(FileModel.model_validate(tree), findings)
        except ValidationError as exc:
            errors = exc.errors(include_url=False)
        if not told:
            findings = tuple(
                Finding(key, complaint(error, model_at(key[:-1])))
                for error in errors
                if complete or error["type"] != "missing"
                for key in (_key(error["loc"]),)
            )
            told = True
        for error in errors:
            _heal(tree, _key(error["loc"]))


def model_at(key: KeyPath) -> type[BaseModel] | None:
    """Return the model of the table at *key*, None if it is no table of ours."""
    match key:
        case ():
            return FileModel
        case ("daemon",):
            return Daemon
        case ("admin",):
            return Admin
        case ("defaults",):
            return Defaults
        case ("backends", _):
            return Backend
        case ("instances", _):
            return Instance
        case ("defaults", "restart") | ("instances", _, "restart"):
            return Restart
        case _:
            return None


def _key(loc: tuple[int | str, ...]) -> KeyPath:
    return tuple(str(part) for part in loc)


def _heal(tree: dict[str, Any], key: KeyPath) -> None:
    """Replace what must be there by something that disturbs no other check, remove the rest."""
    match key:
        case ("instances", name, "model"):
            tree["instances"][name]["model"] = "/"
        case ("instances", name, "listen"):
            index = list(tree["instances"]).index(name)
            # No two instances share it; that its port is privileged is no news at a wrong key.
            tree["instances"][name]["listen"] = f"127.255.{index // 256 % 256}.{index % 256}:1"
        case ("defaults", "binary"):
            tree["defaults"]["binary"] = "/"
        case ("backends" | "instances" as table, name, "binary"):
            tree[table][name]["binary"] = "/"
        case _:
            _remove(tree, key)


def _remove(tree: dict[str, Any], key: KeyPath) -> None:
    """Remove the value at *key*, or the nearest table above that holds it as a plain value."""
    for part in key[:-1]:
        inner = tree.get(part)
        if not isinstance(inner, dict):
            break
        tree = inner
    else:
        part = key[-1]
    tree.pop(part, None)


class _ForEditors(GenerateJsonSchema):
    """TOML has no null: a key is there or not."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        default = schema.get("default")
        return {**inner, "default": default} if isinstance(default, str | int) else inner


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the file, for editors."""
    schema = FileModel.model_json_schema(schema_generator=_ForEditors)
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema}
