"""From pydantic's errors to our words: what is wrong and what to write. Pure."""

import json

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from llamasup.config.options import FALLBACK, did_you_mean

LATER = frozenset(
    {
        "canary",
        "depends_on",
        "displaces",
        "gateway",
        "group",
        "groups",
        "idle_stop",
        "jobs",
        "keys",
        "lane",
        "lanes",
        "memory",
        "on_demand",
        "on_storage_loss",
        "priority",
        "schedule",
        "schedules",
        "stall_timeout",
        "storage",
    }
)
"""Keys that llamasup is going to have: better refused than accepted without effect."""


def complaint(error: ErrorDetails, table: type[BaseModel] | None) -> str:
    """Return the sentence for *error* at a key of *table*."""
    key = str(error["loc"][-1]) if error["loc"] else ""
    match error["type"]:
        case "extra_forbidden":
            return _unknown(key, error["input"], table)
        case "missing":
            return f"is missing: write {key} = {_example(key, table)}"
        case "value_error":
            return str(error["ctx"]["error"])
        case "string_type":
            return f"must be text: write {key} = {json.dumps(_plain(error['input']))}"
        case "bool_type":
            return f"must be true or false: write {key} = true"
        case "int_type" | "int_from_float":
            return f"must be a whole number: write it without quotes, like {key} = 1"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"must be a table: write [{'.'.join(str(part) for part in error['loc'])}]"
        case "literal_error":
            return f"must be {error['ctx']['expected'].replace(chr(39), chr(34))}"
        case "greater_than_equal" | "less_than_equal":
            least = "ge" in error["ctx"]
            bound = error["ctx"]["ge" if least else "le"]
            return f"is out of range: write {'at least' if least else 'at most'} {bound}"
        case _:
            return error["msg"][:1].lower() + error["msg"][1:]


def _unknown(key: str, value: object, table: type[BaseModel] | None) -> str:
    """Tell why *key* is not accepted; the first reason that applies wins."""
    if key in LATER:
        return "is not available in this version of llamasup: remove it"
    fields = () if table is None else tuple(table.model_fields)
    meant = did_you_mean(key.replace("-", "_"), fields)
    if meant is not None:
        return f"is not known: did you mean {meant}?"
    option = key.replace("_", "-")
    if "args" in fields and option in FALLBACK.by_name:
        return f"is an option of llama-server: write args = {{ {option} = {_toml(value)} }}"
    return f"is not known: write one of {', '.join(fields)}"


def _example(key: str, table: type[BaseModel] | None) -> str:
    examples = None if table is None else table.model_fields[key].examples
    return json.dumps(examples[0]) if examples else "…"


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _toml(value: object) -> str:
    return json.dumps(value) if isinstance(value, str | int | float) else "…"
