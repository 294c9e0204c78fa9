"""The description of the API (OpenAPI 3.1), written from the table of endpoints. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from llamasup.admin.views import Json

JSON = "application/json"
TEXT = "text/plain"
HTML = "text/html"
JSON_LINES = "application/x-ndjson"
EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Doc:
    """What an endpoint's row tells its callers. *schema* names a component below."""

    summary: str
    schema: str
    query: tuple[str, ...] = ()
    media: tuple[str, ...] = (JSON,)
    success: int = 200
    failures: tuple[int, ...] = ()
    changes: bool = False


def document(endpoints: Iterable[tuple[str, str, Doc]], version: str) -> Json:
    """Return the whole description of *endpoints*: (method, path, doc)."""
    paths: dict[str, Json] = {}
    for method, path, doc in endpoints:
        paths.setdefault(path, {})[method.lower()] = _operation(method, path, doc)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "llamasup admin API",
            "version": version,
            "license": {"name": "MIT", "identifier": "MIT"},
            "description": (
                "Served on a unix socket and, if configured, on TCP. Over TCP every changing call"
                " needs the token; reading does too unless the port is on loopback. All moments are"
                " ISO 8601 with offset, in UTC."
            ),
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(method: str, path: str, doc: Doc) -> Json:
    in_path = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    parameters = [PARAMETERS[key] for key in (*in_path, *doc.query)]
    operation: Json = {
        "operationId": _operation_id(method, path),
        "summary": doc.summary,
        "responses": _responses(doc),
    }
    if parameters:
        operation["parameters"] = parameters
    if doc.changes:
        operation["security"] = [{}, {"token": []}]
        operation["requestBody"] = {
            "required": False,
            "content": {JSON: {"schema": _reference("Command")}},
        }
    return operation


def _operation_id(method: str, path: str) -> str:
    words = [word for word in path.replace(".", "/").split("/") if word]
    return "_".join([method.lower(), *(word.strip("{}") for word in words)])


def _responses(doc: Doc) -> Json:
    success: Json = {
        "description": doc.summary,
        "content": {media: {"schema": _schema_of(media, doc)} for media in doc.media},
    }
    responses: Json = {str(doc.success): success}
    failures: tuple[int | str, ...] = (*doc.failures, "default")
    for status in failures:
        # Unwell answers of health checks have the body of the good ones.
        schema = doc.schema if status == 503 else "Error"
        responses[str(status)] = {
            "description": FAILURES[status],
            "content": {JSON: {"schema": _reference(schema)}},
        }
    return responses


def _schema_of(media: str, doc: Doc) -> Json:
    return _reference(doc.schema) if media == JSON else {"type": "string"}


def _reference(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


FAILURES: dict[int | str, str] = {
    400: "the query or the body cannot be understood",
    404: "there is nothing with this name or id",
    409: "refused as things are",
    503: "not well, or not ready",
    "default": "refused or failed; the body says why",
}


def _in_query(name: str, description: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _in_path(name: str, description: str) -> Json:
    schema = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"}
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": schema,
    }


PARAMETERS: dict[str, Json] = {
    "name": _in_path("name", "an instance"),
    "id": _in_path("id", "an operation"),
    "wait": _in_query(
        "wait",
        "answer when the operation has ended, or after so many seconds",
        {"type": "number", "minimum": 0, "maximum": 600, "default": 0},
    ),
    "after": _in_query(
        "after",
        "go on after this event: its id, or its number (the header Last-Event-ID goes first)",
        {"type": "string"},
    ),
    "limit": _in_query(
        "limit",
        "so many events at most; without `after` the newest ones",
        {"type": "integer", "minimum": 0, "maximum": 2000, "default": 200},
    ),
    "lines": _in_query(
        "lines",
        "begin with so many of the last lines",
        {"type": "integer", "minimum": 0, "maximum": 10000, "default": 100},
    ),
    "follow": _in_query(
        "follow",
        "1: go on with every new line",
        {"enum": ["0", "1", "true", "false"], "default": "0"},
    ),
}


def _object(required: str, **properties: Json) -> Json:
    return {"type": "object", "required": required.split(), "properties": properties}


def _array(of: Json) -> Json:
    return {"type": "array", "items": of}


_STRING: Json = {"type": "string"}
_INTEGER: Json = {"type": "integer"}
_BOOLEAN: Json = {"type": "boolean"}
_MOMENT: Json = {"type": "string", "format": "date-time"}
_MAYBE_MOMENT: Json = {"type": ["string", "null"], "format": "date-time"}
_MAYBE_INTEGER: Json = {"type": ["integer", "null"]}

PHASES = [
    "stopped",
    "waiting",
    "starting",
    "loading",
    "warming",
    "ready",
    "unready",
    "draining",
    "stopping",
    "killing",
    "stuck",
    "backoff",
    "failed",
]

SCHEMAS: dict[str, Json] = {
    "Status": _object(
        "daemon instances",
        daemon=_reference("Daemon"),
        instances=_array(_reference("Instance")),
    ),
    "Instances": _object("instances", instances=_array(_reference("Instance"))),
    "Daemon": _object(
        "version pid started config summary shutting_down",
        version=_STRING,
        pid=_INTEGER,
        started=_MOMENT,
        config=_STRING,
        summary=_STRING,
        shutting_down=_BOOLEAN,
    ),
    "Instance": _object(
        "name phase reason since pid generation kind model aliases listen restarts last_exit"
        " next_try load_seconds in_flight held",
        name=_STRING,
        phase={"enum": PHASES},
        reason=_STRING,
        since=_MOMENT,
        pid=_MAYBE_INTEGER,
        generation=_INTEGER,
        kind={"enum": ["chat", "embedding", "rerank"]},
        model=_STRING,
        aliases=_array(_STRING),
        listen=_STRING,
        restarts=_INTEGER,
        last_exit={"oneOf": [_reference("Exit"), {"type": "null"}]},
        next_try=_MAYBE_MOMENT,
        load_seconds={"type": ["number", "null"]},
        in_flight=_INTEGER,
        held=_INTEGER,
    ),
    "Exit": _object(
        "code signal cause detail at",
        code=_MAYBE_INTEGER,
        signal=_MAYBE_INTEGER,
        cause={"enum": ["requested", "config", "crash"]},
        detail=_STRING,
        at=_MOMENT,
    ),
    "Command": {
        **_object("", now={**_BOOLEAN, "description": "skip the drain", "default": False}),
        "additionalProperties": False,
    },
    "Operation": _object(
        "id instance verb outcome message started ended",
        id=_STRING,
        instance=_STRING,
        verb={"enum": ["start", "stop", "restart"]},
        outcome={"enum": ["running", "done", "failed", "superseded"]},
        message=_STRING,
        started=_MOMENT,
        ended=_MAYBE_MOMENT,
    ),
    "Events": _object("events last", events=_array(_reference("Event")), last=_STRING),
    "Event": _object(
        "id seq at instance kind level message",
        id=_STRING,
        seq=_INTEGER,
        at=_MAYBE_MOMENT,
        instance=_STRING,
        kind={**_STRING, "description": "`gap` if events before the next one are lost"},
        level={"enum": ["info", "warning", "error"]},
        message=_STRING,
    ),
    "Health": _object("healthy", healthy=_BOOLEAN),
    "Readiness": _object(
        "ready shutting_down not_ready",
        ready=_BOOLEAN,
        shutting_down=_BOOLEAN,
        not_ready=_array(_object("name phase reason", name=_STRING, phase=_STRING, reason=_STRING)),
    ),
    "Text": _STRING,
    "Description": {"type": "object"},
    "Error": _object("error", error=_object("code message", code=_STRING, message=_STRING)),
}
