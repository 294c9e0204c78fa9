import json

import aiohttp
from openapi_spec_validator import validate

from llamasup.admin.app import ENDPOINTS
from llamasup.admin.openapi import PHASES, SCHEMAS, document
from llamasup.admin.views import operation_view, readiness_view, status_view
from llamasup.core.model import Phase, Verb
from llamasup.core.operations import Operation, Outcome
from tests.fakes.control import FakeControl

DOCUMENT = document(((one.method, one.path, one.doc) for one in ENDPOINTS), "1.2.3")


def test_it_is_valid_openapi_3_1():
    validate(json.loads(json.dumps(DOCUMENT)))
    assert DOCUMENT["openapi"] == "3.1.0"


def test_it_covers_the_table_and_nothing_else():
    paths = DOCUMENT["paths"]
    assert isinstance(paths, dict)
    described = {(method.upper(), path) for path, item in paths.items() for method in item}

    assert described == {(one.method, one.path) for one in ENDPOINTS}


def test_changing_calls_name_the_token():
    paths = DOCUMENT["paths"]
    assert isinstance(paths, dict)
    for path, item in paths.items():
        for method, operation in item.items():
            assert ("security" in operation) == (method == "post"), path


def test_the_phases_are_those_of_the_core():
    assert set(PHASES) == {phase.value for phase in Phase} | {"waiting"}


def keys(schema: str) -> set[str]:
    properties = SCHEMAS[schema]["properties"]
    assert isinstance(properties, dict)
    return set(properties)


def test_the_schemas_name_the_keys_that_are_sent():
    status = FakeControl().status()
    view = status_view(status)
    row = view["instances"][0]  # type: ignore[index]

    assert keys("Daemon") == set(view["daemon"])  # type: ignore[call-overload]
    assert keys("Instance") == set(row)
    assert keys("Exit") == set(row["last_exit"])
    assert keys("Readiness") == set(readiness_view(status))
    operation = Operation("op1", "chat", Verb.STOP, 1, 0.0, Outcome.DONE)
    assert keys("Operation") == set(operation_view(operation))


async def test_every_described_read_answers_as_described(
    client: aiohttp.ClientSession, control: FakeControl
):
    operation = control.command("chat", Verb.STOP)
    for one in ENDPOINTS:
        if one.method != "GET":
            continue
        path = one.path.replace("{name}", "chat").replace("{id}", operation.id)
        async with client.get(path) as answer:
            assert answer.status == one.doc.success, path
            assert answer.content_type == one.doc.media[0], path
