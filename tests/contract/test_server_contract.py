"""What llamasup relies on in the answers of a llama-server; the fake keeps all of it."""

import json

import pytest

from tests.contract.talk import CHAT, LONG, SLOW, read_all, read_until


def events(body: bytes) -> list[str]:
    """Return the data of each server-sent event; the framing must be exact."""
    parts = body.decode().split("\n\n")
    assert parts[-1] in ("", "\n")
    assert all(part.startswith("data: ") for part in parts[:-1])
    return [part.removeprefix("data: ") for part in parts[:-1]]


# --- state --------------------------------------------------------------------------------------


def test_health_needs_no_key_and_all_else_does(launch, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# ours\nsecret\n")
    server = launch("--api-key-file", str(keys))

    assert server.ask("/health").json() == {"status": "ok"}
    assert server.ask("/v1/models").status == 401
    refused = server.ask("/props")
    assert refused.status == 401
    assert refused.json() == {
        "error": {"message": "Invalid API Key", "type": "authentication_error", "code": 401}
    }
    assert server.ask("/props", Authorization="Bearer secret").status == 200
    assert server.ask("/props", **{"X-Api-Key": "secret"}).status == 200


def test_props_and_slots_report_alias_slots_and_context(launch, models):
    server = launch(
        "--alias", "zoe,adam", "--ctx-size", "2048", "--parallel", "2", "--no-kv-unified"
    )

    props = server.ask("/props").json()

    assert props["model_alias"] == "adam"
    assert props["model_path"] == models.chat
    assert props["total_slots"] == 2
    assert props["default_generation_settings"]["n_ctx"] == 1024
    assert props["endpoint_slots"] is True
    assert props["endpoint_metrics"] is False
    assert server.ask("/slots").json() == [
        {"id": 0, "n_ctx": 1024, "speculative": False, "is_processing": False},
        {"id": 1, "n_ctx": 1024, "speculative": False, "is_processing": False},
    ]


@pytest.mark.parametrize(
    ("args", "count", "each"),
    [
        (["--ctx-size", "4096"], 4, 4096),
        (["--ctx-size", "4096", "--parallel", "4"], 4, 1024),
        (["--ctx-size", "4096", "--parallel", "4", "--kv-unified"], 4, 4096),
        (["--ctx-size", "4000", "--parallel", "3"], 3, 1536),
        (["--ctx-size", "4k", "--parallel", "1"], 1, 256),
        (["--kv-unified-per-slot", "1024", "--parallel", "3"], 3, 1024),
    ],
)
def test_the_context_of_a_slot_follows_the_options(launch, args, count, each):
    server = launch(*args)

    assert [slot["n_ctx"] for slot in server.ask("/slots").json()] == [each] * count


def test_models_lists_the_alias(launch):
    server = launch("--alias", "tiny")

    for path in ("/v1/models", "/models"):
        listed = server.ask(path).json()
        assert listed["object"] == "list"
        assert [entry["id"] for entry in listed["data"]] == ["tiny"]
        assert listed["data"][0]["aliases"] == ["tiny"]
        assert {"n_ctx", "n_ctx_train", "n_params", "size"} <= listed["data"][0]["meta"].keys()


def test_metrics_is_a_prometheus_page_with_the_known_names(launch):
    server = launch("--metrics", "--parallel", "1", "--ctx-size", "1024")
    server.ask("/v1/chat/completions", CHAT)

    answer = server.ask("/metrics")

    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4"
    lines = answer.body.decode().splitlines()
    values = dict(line.split(" ") for line in lines if not line.startswith("#"))
    assert float(values["llamacpp:tokens_predicted_total"]) == 3
    assert float(values["llamacpp:n_decode_total"]) >= 3
    assert values["llamacpp:requests_processing"] == "0"
    assert values["llamacpp:requests_deferred"] == "0"
    names = {name.removeprefix("llamacpp:") for name in values}
    assert {"prompt_tokens_total", "n_tokens_max", "predicted_tokens_seconds"} <= names


def test_lora_adapters_is_an_empty_list(launch):
    assert launch().ask("/lora-adapters").json() == []


@pytest.mark.parametrize(("args", "path"), [([], "/metrics"), (["--no-slots"], "/slots")])
def test_an_endpoint_that_is_off_says_501(launch, args, path):
    answer = launch(*args).ask(path)

    assert answer.status == 501
    assert answer.json()["error"]["type"] == "not_supported_error"


# --- requests -----------------------------------------------------------------------------------


def test_chat(launch):
    server = launch("--alias", "tiny")

    answer = server.ask("/v1/chat/completions", CHAT)

    body = answer.json()
    assert answer.headers["Content-Type"].startswith("application/json")
    assert (body["object"], body["model"]) == ("chat.completion", "tiny")
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["choices"][0]["message"]["role"] == "assistant"
    assert body["choices"][0]["message"]["content"]
    assert body["usage"]["completion_tokens"] == 3
    assert body["timings"]["predicted_n"] == 3
    assert body["id"].startswith("chatcmpl-")


def test_a_chat_stream_begins_with_the_role_and_ends_with_usage_and_done(launch):
    server = launch()

    answer = server.ask(
        "/v1/chat/completions",
        CHAT | {"stream": True, "stream_options": {"include_usage": True}},
    )

    assert answer.headers["Content-Type"] == "text/event-stream"
    assert answer.headers["X-Accel-Buffering"] == "no"
    assert answer.headers["Transfer-Encoding"] == "chunked"
    *chunks, done = events(answer.body)
    first, *content, last, usage = [json.loads(chunk) for chunk in chunks]
    assert done == "[DONE]"
    assert {chunk["object"] for chunk in (first, last, usage)} == {"chat.completion.chunk"}
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert all(chunk["choices"][0]["delta"]["content"] for chunk in content)
    assert last["choices"] == [{"finish_reason": "length", "index": 0, "delta": {}}]
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
    assert usage["timings"]["predicted_n"] == 3


def test_a_chat_stream_without_usage_has_timings_in_its_last_chunk(launch):
    answer = launch().ask("/v1/chat/completions", CHAT | {"stream": True})

    last = json.loads(events(answer.body)[-2])
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["timings"]["predicted_n"] == 3


def test_the_connection_closes_after_a_stream_and_stays_after_a_plain_answer(launch):
    server = launch()

    with server.open("/v1/chat/completions", CHAT | {"stream": True}) as connection:
        assert read_all(connection).endswith(b"0\r\n\r\n")
    with server.open("/v1/chat/completions", CHAT) as connection:
        read_until(connection, b"predicted_per_second")
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b'{"status":"ok"}' in read_until(connection, b'"ok"}')


@pytest.mark.parametrize("stream", [True, False])
def test_completions(launch, stream):
    answer = launch().ask("/v1/completions", {"prompt": "hi", "max_tokens": 2, "stream": stream})

    if stream:
        *chunks, done = events(answer.body)
        assert done == "[DONE]"
        body = json.loads(chunks[-1])
    else:
        body = answer.json()
    assert body["object"] == "text_completion"
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 2


def test_plain_completion(launch):
    body = launch().ask("/completion", {"prompt": "hi", "n_predict": 1}).json()

    assert body["content"]
    assert body["stop"] is True
    assert body["tokens_predicted"] == 1


def test_embeddings(launch):
    server = launch("--embeddings", "--pooling", "mean")

    body = server.ask("/v1/embeddings", {"input": ["hi", "ho"]}).json()

    assert body["object"] == "list"
    assert [row["index"] for row in body["data"]] == [0, 1]
    assert abs(sum(x * x for x in body["data"][0]["embedding"]) - 1) < 1e-3
    assert body["data"][0]["embedding"] != body["data"][1]["embedding"]


def test_embeddings_are_refused_without_the_option(launch):
    answer = launch().ask("/v1/embeddings", {"input": "hi"})

    assert answer.status == 501
    assert answer.json()["error"]["type"] == "not_supported_error"


def test_embeddings_without_pooling_are_refused(launch):
    answer = launch("--embeddings").ask("/v1/embeddings", {"input": "hi"})

    assert answer.status == 400
    assert "Pooling type 'none' is not OAI compatible" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank"])
def test_rerank(launch, models, path):
    server = launch("--rerank", model=models.rerank)

    body = server.ask(path, {"query": "hi", "documents": ["ho", "hi there"]}).json()

    assert sorted(row["index"] for row in body["results"]) == [0, 1]
    assert all(isinstance(row["relevance_score"], float) for row in body["results"])


def test_rerank_is_refused_without_the_option(launch):
    assert launch().ask("/v1/rerank", {"query": "a", "documents": ["b"]}).status == 501


def test_tokenize(launch):
    assert launch().ask("/tokenize", {"content": "hi there"}).json()["tokens"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind"),
    [
        ("GET", "/no/such/path", None, 404, "not_found_error"),
        ("PUT", "/health", None, 404, "not_found_error"),
        ("GET", "/v1/chat/completions", None, 404, "not_found_error"),
        ("POST", "/v1/chat/completions", b"{bad", 400, "invalid_request_error"),
        ("POST", "/v1/chat/completions", {}, 400, "invalid_request_error"),
        ("POST", "/props", {}, 501, "not_supported_error"),
    ],
)
def test_errors_have_one_shape_and_close_the_connection(launch, method, path, body, status, kind):
    answer = launch().ask(path, body, method=method)

    error = answer.json()["error"]
    assert answer.status == status
    assert (error["code"], error["type"]) == (status, kind)
    assert error["message"]
    assert answer.headers["Connection"] == "close"


@pytest.mark.parametrize("stream", [True, False])
def test_a_prompt_beyond_the_context_is_a_plain_400(launch, stream):
    server = launch("--ctx-size", "256", "--parallel", "1")
    body = {"prompt": "word " * 600, "max_tokens": 1, "stream": stream}

    answer = server.ask("/v1/completions", body)

    error = answer.json()["error"]
    assert answer.status == 400
    assert error["type"] == "exceed_context_size_error"
    assert error["n_ctx"] == 256
    assert error["n_prompt_tokens"] > 256


def test_a_busy_slot_says_so_and_is_free_again_once_its_client_has_left(launch):
    server = launch("--parallel", "1", "--ctx-size", "32768", **SLOW)

    with server.open("/v1/chat/completions", LONG | {"stream": True}) as connection:
        read_until(connection, b"data: ")
        slot = server.ask("/slots").json()[0]
        assert slot["is_processing"] is True
        assert slot["next_token"][0]["n_decoded"] >= 1

    server.wait_for(
        lambda: not server.ask("/slots").json()[0]["is_processing"], "a slot that is free again"
    )
