"""Must be seen 1: four instances of the real llama-server from one file, always answering."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.e2e.harness import Daemon, alive, running, wait_for
from tests.fakes.servers import TinyModels, real_server_path, tiny_models

pytestmark = [pytest.mark.real, pytest.mark.e2e]


def home_lab(models: TinyModels) -> dict[str, dict[str, Any]]:
    """The four instances of the home lab, with tiny models."""
    return {
        "chat": {
            "model": models.chat,
            "alias": ["qwen3-8b"],
            "parallel": 2,
            "args": {"ctx-size": 4096, "threads": 1},
        },
        "small": {"model": models.chat, "args": {"ctx-size": 2048, "threads": 1}},
        "embed": {
            "model": models.chat,
            "kind": "embedding",
            "args": {"ctx-size": 2048, "embeddings": True, "pooling": "mean", "threads": 1},
        },
        "rank": {
            "model": models.rerank,
            "args": {"ctx-size": 2048, "rerank": True, "threads": 1},
        },
    }


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    models = tiny_models(tmp_path_factory.getbasetemp())
    restart = {"stable": "0s", "burst": 1000}
    daemon = Daemon(real_server_path(), home_lab(models), defaults={"restart": restart})
    with running(daemon):
        daemon.wait_ready()
        yield daemon


def client(lab: Daemon, name: str) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"http://127.0.0.1:{lab.ports[name]}/v1", api_key="none", max_retries=0, timeout=60
    )


def test_status_shows_four_ready_instances(lab: Daemon) -> None:
    rows = lab.rows()

    assert {name: row["phase"] for name, row in rows.items()} == {
        "chat": "ready",
        "small": "ready",
        "embed": "ready",
        "rank": "ready",
    }
    for name, row in rows.items():
        assert row["listen"] == f"127.0.0.1:{lab.ports[name]}"
        assert alive(row["pid"])
        assert (row["generation"], row["restarts"], row["last_exit"]) == (1, 0, None)


def test_chat_answers_plain_and_streamed(lab: Daemon) -> None:
    messages: Any = [{"role": "user", "content": "hello"}]
    with client(lab, "chat") as api:
        plain = api.chat.completions.create(model="qwen3-8b", messages=messages, max_tokens=5)
        stream = api.chat.completions.create(
            model="qwen3-8b", messages=messages, max_tokens=5, stream=True
        )
        chunks = list(stream)

    assert plain.usage is not None
    assert plain.usage.completion_tokens == 5
    assert plain.choices[0].message.content
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"


def test_embeddings_have_the_model_s_width(lab: Daemon) -> None:
    with client(lab, "embed") as api:
        answer = api.embeddings.create(model="embed", input=["one", "two"])

    assert len(answer.data) == 2
    assert {len(row.embedding) for row in answer.data} == {len(answer.data[0].embedding)}
    assert len(answer.data[0].embedding) >= 64
    assert answer.data[0].embedding != answer.data[1].embedding


def test_rerank_scores_every_document(lab: Daemon) -> None:
    body = {"query": "fruit", "documents": ["apple", "car", "pear"]}

    status, answer = lab.post("rank", "/v1/rerank", body)

    assert status == 200
    assert sorted(row["index"] for row in answer["results"]) == [0, 1, 2]


def test_a_killed_instance_comes_back_and_nobody_is_refused(lab: Daemon) -> None:
    before = lab.rows()
    answers: list[tuple[int, Any]] = []

    def ask() -> None:
        answers.append(lab.chat("chat", "are you back?"))

    os.kill(before["chat"]["pid"], signal.SIGKILL)
    asking = threading.Thread(target=ask)  # during the restart: held, then answered
    asking.start()
    asking.join(60)
    wait_for(lambda: lab.phase("chat") == "ready", "chat is back")

    after = lab.rows()
    assert [status for status, _ in answers] == [200]
    assert after["chat"]["generation"] == before["chat"]["generation"] + 1
    assert after["chat"]["last_exit"]["signal"] == signal.SIGKILL
    for other in ("small", "embed", "rank"):
        assert after[other]["pid"] == before[other]["pid"]
        assert after[other]["since"] == before[other]["since"]


def test_a_stop_ends_every_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    models = tiny_models(tmp_path_factory.getbasetemp())
    daemon = Daemon(real_server_path(), home_lab(models))
    with running(daemon):
        daemon.wait_ready()
        pids = [row["pid"] for row in daemon.rows().values()]

        assert daemon.stop() == 0

        assert [pid for pid in pids if alive(pid)] == []
        assert list(daemon.runtime_dir.glob("*.sock")) == []
