"""Does a child run as it was configured? llama-server misreads some values in silence. Pure."""

from typing import Any

from llamasup.config.spec import Spec


def unfitness(spec: Spec, props: Any, slots: Any) -> str:
    """Return what of *spec* the child's /props and /slots contradict, "" if nothing."""
    return (
        _slot_problem(spec, slots) or _context_problem(spec, slots) or _alias_problem(spec, props)
    )


def _slot_problem(spec: Spec, slots: Any) -> str:
    if not isinstance(slots, list):
        return ""
    if len(slots) != spec.parallel:
        return (
            f"the configuration asks for {spec.parallel} slots (parallel), the server has "
            f"{len(slots)}; write the number that the server can have"
        )
    return ""


def _context_problem(spec: Spec, slots: Any) -> str:
    if not isinstance(slots, list) or spec.slot_context is None:
        return ""
    contexts = {slot["n_ctx"] for slot in slots if isinstance(slot, dict) and "n_ctx" in slot}
    wrong = sorted(contexts - {spec.slot_context})
    if not wrong:
        return ""
    return (
        f"the configuration gives each slot {spec.slot_context} tokens of context (ctx-size and "
        f"parallel), the server gives {wrong[0]}; if the model was trained for less, write less"
    )


def _alias_problem(spec: Spec, props: Any) -> str:
    if not isinstance(props, dict) or not spec.aliases:
        return ""
    alias = props.get("model_alias")
    # The server reports one of several aliases, the first in the alphabet.
    if isinstance(alias, str) and alias and alias not in spec.aliases:
        return f"the server calls itself {alias!r}, not {' or '.join(spec.aliases)}: another server"
    return ""
