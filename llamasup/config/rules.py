"""Rules about the file as a whole and about one instance as a whole. Pure."""

import re
from collections.abc import Iterator

from llamasup import paths
from llamasup.config.args import Args, is_on, slot_context
from llamasup.config.options import did_you_mean
from llamasup.config.problem import Finding, KeyPath, Level
from llamasup.config.schema import FileModel, Instance
from llamasup.config.spec import Address, Kind

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_LAST_GEN = 9_999_999  # generations; a child that restarts every second gets there in 115 days
_WILDCARDS = frozenset({"0.0.0.0", "::"})


def check_names(model: FileModel, runtime_dir: str) -> Iterator[Finding]:
    """Names become file names, words of the command line and parts of URLs."""
    if not model.instances:
        yield Finding(("instances",), "is missing: write [instances.NAME] with listen and model")
    for table, names in (("instances", model.instances), ("backends", model.backends)):
        for name in names:
            if _NAME.fullmatch(name) is None:
                text = (
                    "is not a usable name: write up to 63 letters, digits, - and _, "
                    "a letter or digit first"
                )
                yield Finding((table, name), text)
    for name in model.instances:
        over = _excess(paths.socket_path(runtime_dir, name, _LAST_GEN))
        if _NAME.fullmatch(name) and over > 0:
            text = (
                f"makes a socket path that is {over} bytes too long for Linux: "
                "write a shorter name, or a shorter runtime_dir in [daemon]"
            )
            yield Finding(("instances", name), text)


def _excess(path: str) -> int:
    return len(path.encode()) - paths.LONGEST_SOCKET_PATH


def check_admin_socket(model: FileModel) -> Iterator[Finding]:
    """A unix socket's path is short."""
    if model.admin.socket is not None and (over := _excess(model.admin.socket)) > 0:
        text = f"is {over} bytes too long for a socket: write a shorter path"
        yield Finding(("admin", "socket"), text)


def check_aliases(model: FileModel) -> Iterator[Finding]:
    """A name or alias leads to one instance only."""
    owners = {name: name for name in model.instances}
    for name, instance in model.instances.items():
        for alias in instance.alias:
            owner = owners.setdefault(alias, name)
            if owner != name:
                what = "the name" if alias == owner else "an alias"
                text = f'"{alias}" is {what} of instances.{owner} already: write another'
                yield Finding(("instances", name, "alias"), text)


def check_addresses(model: FileModel, lowest_port: int) -> Iterator[Finding]:
    """Two listeners cannot share an address, and low ports need a capability."""
    taken: list[tuple[KeyPath, Address]] = []
    if model.admin.listen is not None:
        taken.append((("admin", "listen"), model.admin.listen))
    taken += [(("instances", n, "listen"), inst.listen) for n, inst in model.instances.items()]
    for key, address in taken:
        if address.port < lowest_port:
            text = (
                f"port {address.port} needs CAP_NET_BIND_SERVICE: write a port from {lowest_port} "
                "up, or AmbientCapabilities=CAP_NET_BIND_SERVICE in the unit"
            )
            yield Finding(key, text)
    for index, (key, address) in enumerate(taken):
        for other_key, other in taken[:index]:
            if _clash(address, other):
                text = f"{address} is taken by {'.'.join(other_key)} ({other}): write another port"
                yield Finding(key, text)
                break


def _clash(one: Address, other: Address) -> bool:
    hosts = {one.host, other.host}
    return one.port == other.port and (len(hosts) == 1 or not hosts.isdisjoint(_WILDCARDS))


def check_backend(model: FileModel, key: KeyPath, backend: str | None) -> Iterator[Finding]:
    """The backend named at *key* is there."""
    if backend is not None and backend not in model.backends:
        meant = did_you_mean(backend, model.backends)
        hint = f'write "{meant}"' if meant else f"write [backends.{backend}] with its binary"
        yield Finding(key, f'there is no backend "{backend}": {hint}')


_NOT_OURS = {
    "LLAMA_API_KEY": "write api_key_file in the instance",
    "LLAMA_SERVER_ROUTER_PORT": "it would change how llama-server ends: remove it",
    "XDG_CONFIG_HOME": "llamasup sets it: remove it",
    "NOTIFY_SOCKET": "llamasup alone talks to systemd: remove it",
}


def check_env(key: KeyPath, env: dict[str, str]) -> Iterator[Finding]:
    """Options of llama-server stand in ``args``, where they are checked."""
    for name, value in env.items():
        if name.startswith("LLAMA_ARG_"):
            option = name.removeprefix("LLAMA_ARG_").lower().replace("_", "-")
            yield Finding((*key, name), f"is an option of llama-server: write {option} in args")
        elif name in _NOT_OURS:
            yield Finding((*key, name), f"cannot be set here: {_NOT_OURS[name]}")
        elif not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            yield Finding((*key, name), "is not a name of a variable: write letters, digits and _")
        elif "\0" in value:
            yield Finding((*key, name), "has a zero byte in it: write it without")


def kind_of(instance: Instance, args: Args) -> Kind:
    """Return the kind the file names, else rerank if the options say so, else chat.

    Options alone cannot tell an embedding model from a chat model that answers embeddings too.
    """
    named = instance.kind_of()
    if named is not None:
        return named
    return Kind.RERANK if _is_reranking(args) else Kind.CHAT


def _is_reranking(args: Args) -> bool:
    return is_on(args, "rerank", "reranking") or _pooling(args) == "rank"


def _pooling(args: Args) -> str | None:
    value = args["pooling"].value if "pooling" in args else None
    return value if isinstance(value, str) else None


def check_kind(key: KeyPath, kind: Kind, args: Args) -> Iterator[Finding]:
    """The options let the instance answer what its kind says."""
    embeds, pooling = is_on(args, "embedding", "embeddings"), _pooling(args)
    match kind:
        case Kind.RERANK if not _is_reranking(args):
            yield Finding((*key, "kind"), '"rerank" needs the option: write rerank = true in args')
        case Kind.EMBEDDING if not embeds:
            text = '"embedding" needs the option: write embeddings = true in args'
            yield Finding((*key, "kind"), text)
        case Kind.EMBEDDING | Kind.CHAT if _is_reranking(args):
            yield Finding((*key, "kind"), f'"{kind}" does not rerank: write kind = "rerank"')
        case Kind.EMBEDDING if pooling is None:
            text = (
                "embeddings without pooling work only if the model names its own: "
                'write pooling = "mean", "cls" or "last" in args'
            )
            yield Finding((*key, "args"), text, Level.WARNING)
        case Kind.EMBEDDING | Kind.CHAT if embeds and pooling in (None, "none"):
            text = (
                "embeddings of a chat model need pooling: write pooling = "
                '"mean", "cls" or "last" in args, or kind = "embedding"'
            )
            if kind is Kind.EMBEDDING:
                text = 'pooling = "none" gives no embeddings: write "mean", "cls" or "last"'
            yield Finding(args["pooling"].key if "pooling" in args else (*key, "args"), text)
        case _:
            pass


def check_context(key: KeyPath, instance: Instance, args: Args) -> Iterator[Finding]:
    """Each slot gets the context the user counts on."""
    wanted, context = instance.min_context, slot_context(args, instance.parallel)
    if wanted is None or context is None or context >= wanted:
        return
    needed = wanted * (1 if is_on(args, "kv-unified") else instance.parallel)
    if "kv-unified-per-slot" in args:
        text = f"write kv-unified-per-slot = {wanted} or more in args"
    else:
        text = f"write ctx-size = {needed} in args, a smaller parallel or a smaller min_context"
    yield Finding(
        (*key, "min_context"), f"{wanted} tokens are asked, a slot gets {context}: {text}"
    )
