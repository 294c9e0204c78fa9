"""The files in etc/ are right, explained line by line, and the schema there is that of the code."""

import json
import os
import re
from pathlib import Path

import pytest

from llamasup.check import check
from llamasup.config.schema import json_schema
from llamasup.config.spec import Kind

ETC = Path(__file__).parents[2] / "etc"
EXAMPLES = ["llamasup.toml", "llamasup-box.toml"]


@pytest.mark.parametrize("name", EXAMPLES)
async def test_an_example_has_no_problem(name):
    checked = await check(str(ETC / name), environ={}, deep=False)

    assert checked.problems == ()


@pytest.mark.real
@pytest.mark.parametrize("name", EXAMPLES)
async def test_the_real_server_takes_an_example(name, tmp_path):
    """Only the binary's path differs, and the GPU's name, which a build without one refuses."""
    binary = os.environ["LLAMASUP_LLAMA_SERVER"]
    text = re.sub(r'"/opt/[^"]*/llama-server"', json.dumps(binary), (ETC / name).read_text())
    text = re.sub(r'device = "[A-Za-z]+0"', 'device = "none"', text)
    (tmp_path / name).write_text(text)

    checked = await check(str(tmp_path / name), environ=os.environ)

    assert checked.problems == ()


async def test_the_home_lab_keeps_its_ports():
    checked = await check(str(ETC / "llamasup.toml"), environ={}, deep=False)

    assert [(i.name, i.listen.port, i.spec.kind) for i in checked.settings.instances] == [
        ("chat", 1234, Kind.CHAT),
        ("small-a", 1236, Kind.CHAT),
        ("small-b", 1237, Kind.CHAT),
        ("embed", 1238, Kind.EMBEDDING),
    ]


async def test_the_box_has_two_backends_and_reranks():
    checked = await check(str(ETC / "llamasup-box.toml"), environ={}, deep=False)

    chat, embed, rerank = (i.spec for i in checked.settings.instances)
    assert (chat.kind, chat.parallel, chat.slot_context) == (Kind.CHAT, 4, 32768)
    assert (embed.kind, embed.slot_context) == (Kind.EMBEDDING, 8192)
    assert (rerank.kind, rerank.slot_context) == (Kind.RERANK, 8192)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_line_is_explained(name):
    for line in (ETC / name).read_text().splitlines():
        assert not line or "#" in line or line.endswith(".args]"), line


def test_the_schema_in_etc_is_that_of_the_code():
    assert json.loads((ETC / "llamasup.schema.json").read_text()) == json_schema()
