"""Is the server that answers the one that the configuration asks for? Pure.

Each check returns None or one sentence for the user: what was asked, what is there, what to write.
"""

from llamasup.config.spec import Spec
from llamasup.probe.http import field

_CELL = 256  # llama-server rounds the context of a slot up to a multiple of this


def judge(spec: Spec, props: object, slots: object) -> str | None:
    """Compare the answers of /props and /slots (no list where that is switched off) with *spec*."""
    return _model(spec, props) or _slot_count(spec, props, slots) or _context(spec, props, slots)


def _model(spec: Spec, props: object) -> str | None:
    if spec.aliases:
        alias = field(props, "model_alias")
        if alias in spec.aliases:
            return None
        asked, there = f"the alias {' or '.join(spec.aliases)}", f"the alias {alias}"
    else:
        path = field(props, "model_path")
        if path == spec.model:
            return None
        asked, there = f"the model {spec.model}", f"the model {path}"
    return (
        f"the configuration asks for {asked}, the server reports {there}; "
        f"check `binary` and `env`: something else was started, or these options were overridden"
    )


def _slot_count(spec: Spec, props: object, slots: object) -> str | None:
    there = len(slots) if isinstance(slots, list) else field(props, "total_slots")
    if there == spec.parallel:
        return None
    return (
        f"the configuration asks for {spec.parallel} slots, the server reports {there}; "
        f"write parallel = {there}, or a backend that honours --parallel"
    )


def _context(spec: Spec, props: object, slots: object) -> str | None:
    if spec.slot_context is None:
        return None
    if isinstance(slots, list) and slots:
        reported = {field(slot, "n_ctx") for slot in slots}
    else:
        reported = {field(field(props, "default_generation_settings"), "n_ctx")}
    asked = spec.slot_context
    if reported <= {asked, -(-asked // _CELL) * _CELL}:
        return None
    there = ", ".join(sorted(str(each) for each in reported))
    return (
        f"the configuration asks for {asked} tokens of context per slot, the server reports "
        f"{there}; if the model was trained for no more, ask for {there} per slot, "
        f"else check args.ctx-size, parallel and kv-unified"
    )
