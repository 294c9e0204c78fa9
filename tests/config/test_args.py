"""``args``: merging, checking, and the words of the command line."""

import pytest

from llamasup.config.args import merge, slot_context, to_argv
from llamasup.config.problem import Level


def refused(resolved, told):
    """Messages by the name of the option alone."""
    return {key.rpartition(".")[2]: text for key, text in told(resolved).items()}


def words(resolved):
    """What follows the part of argv that llamasup always writes itself."""
    argv = resolved.settings.instances[0].spec.argv
    return argv[argv.index("--slots") + 1 :]


OURS = (
    *("--cache-ram", "0", "--ctx-size", "0", "--load-mode", "none"),
    *("--metrics", "--sse-ping-interval", "5"),
)


def test_what_llamasup_asks_of_every_server(instance):
    assert instance().settings.instances[0].spec.argv == (
        "/bin/llama-server",
        *("--model", "/m.gguf", "--alias", "chat", "--parallel", "1", "--slots"),
        *OURS,
    )


def test_the_file_wins_over_what_llamasup_asks(instance):
    resolved = instance('ctx-size = 4096, cache_ram = 512, load-mode = "mmap", metrics = false')

    assert words(resolved) == (
        *("--cache-ram", "512", "--ctx-size", "4096", "--load-mode", "mmap"),
        *("--sse-ping-interval", "5"),
    )


def test_an_older_binary_is_not_asked_for_what_it_does_not_know(instance, known):
    del known.by_name["load-mode"]

    assert "--load-mode" not in words(instance())


@pytest.mark.parametrize(
    ("args", "argv"),
    [
        ("embeddings = true, pooling = 'mean'", ("--embeddings", "--pooling", "mean")),
        ("warmup = false", ("--no-warmup",)),
        ("no-warmup = true", ("--no-warmup",)),
        ("no-warmup = false", ()),
        ("embedding = false", ()),
        ("pooling = false", ()),
        ("lora = ['/a', '/b']", ("--lora", "/a", "--lora", "/b")),
        ("lora = []", ()),
        ("temp = 0.5", ("--temp", "0.5")),
        ("threads = '4'", ("--threads", "4")),
        ("gpu_layers = 'all'", ("--gpu-layers", "all")),
        ("control-vector-layer-range = [1, 9]", ("--control-vector-layer-range", "1", "9")),
        (
            "chat-template-kwargs = { a = true, b = 'é' }",
            ("--chat-template-kwargs", '{"a":true,"b":"\\u00e9"}'),
        ),
    ],
)
def test_values_become_words(instance, args, argv):
    resolved = instance(args)

    assert resolved.findings == ()
    assert tuple(w for w in words(resolved) if w not in OURS) == tuple(
        w for w in argv if w not in OURS
    )


def test_the_order_in_the_file_changes_nothing(instance):
    one = instance("warmup = false, threads = 2, jinja = true")
    other = instance("jinja = true, threads = 2, no-warmup = true")

    assert one.settings == other.settings
    assert words(one)[0] == "--jinja"


@pytest.mark.parametrize(
    ("args", "name", "message"),
    [
        ("port = 1", "port", 'is set by llamasup: write listen = "127.0.0.1:1234" in the instance'),
        ("np = 2", "np", "is set by llamasup: write parallel = 1 in the instance"),
        ("m = '/x'", "m", 'is set by llamasup: write model = "/…" in the instance'),
        ("slots = true", "slots", "is always on, llamasup needs it: remove it"),
        (
            "gpt-oss-20b-default = true",
            "gpt-oss-20b-default",
            'downloads a model: write model = "/…" in the instance',
        ),
        (
            "list-devices = true",
            "list-devices",
            "makes llama-server print something and end: remove it",
        ),
        ("c = 4096", "c", "is a short spelling: write ctx-size"),
        ("nkvo = true", "nkvo", "is a short spelling: write no-kv-offload"),
        ("--ctx-size = 1", "--ctx-size", "must stand without dashes: write ctx-size"),
        (
            "no-mmap = true",
            "no-mmap",
            'is no option of this llama-server any more: write load-mode = "none"',
        ),
        (
            "mmap = false",
            "mmap",
            'is no option of this llama-server any more: write load-mode = "mmap"',
        ),
        (
            "draft_max = 8",
            "draft_max",
            "is no option of this llama-server any more: write spec-draft-n-max = 3",
        ),
        (
            "spec-old-thing = 1",
            "spec-old-thing",
            "the argument has been removed. use spec-new-thing",
        ),
        (
            "lora-base = '/x'",
            "lora-base",
            "is no option of this llama-server any more: remove it",
        ),
        (
            "ctx-sise = 1",
            "ctx-sise",
            "is not an option of this llama-server: did you mean ctx-size?",
        ),
        (
            "zzzzz = 1",
            "zzzzz",
            "is not an option of this llama-server: remove it, or see llama-server --help",
        ),
        ("metrics = 'on'", "metrics", "is a flag: write metrics = true or metrics = false"),
        ("flash-attn = true", "flash-attn", 'needs a value: write flash-attn = "on"'),
        ("threads = true", "threads", "needs a value: write threads = -1"),
        ("ctx-size = '4k'", "ctx-size", '"4k" is not a number: write ctx-size = 4096'),
        ("ctx-size = '1M'", "ctx-size", '"1M" is not a number: write ctx-size = 1048576'),
        ("ctx-size = -5", "ctx-size", "is less than 256 tokens: write ctx-size = 256 or more, "
         "or 0 for the model's own"),
        ("threads = 1.5", "threads", "must be a whole number: write threads = 1"),
        (
            "gpu-layers = 'most'",
            "gpu-layers",
            '"most" is not a number: write gpu-layers = 1 or "all" or "auto"',
        ),
        (
            "threads = { on = 2026-01-01 }",
            "threads",
            '{"on": "2026-01-01"} is not a number: write threads = -1',
        ),
        ("temp = nan", "temp", "is not a finite number: write one"),
        (
            "control-vector-layer-range = 3",
            "control-vector-layer-range",
            "takes 2 values: write control-vector-layer-range = [START, END]",
        ),
        ("lora = [true]", "lora", "has true or false in its list: write texts or numbers"),
        (
            "lora = 2026-01-01",
            "lora",
            "is not text, a number, true, false, a list or a table: write it in quotes",
        ),
        ('lora = "a\\u0000b"', "lora", "has a zero byte in it: write it without"),
        ("threads = 1, Threads = 2", "Threads", "is not an option of this llama-server: "
         "did you mean threads?"),
        ("ctx-size = 512, ctx_size = 1024", "ctx_size", "says the same as ctx-size: "
         "write one of them"),
        ("warmup = true, no-warmup = true", "no-warmup", "says the same as warmup: "
         "write one of them"),
    ],
)  # fmt: skip
def test_what_is_refused(instance, told, args, name, message):
    assert refused(instance(args), told) == {name: message}


def test_an_option_without_effect_is_a_warning(instance):
    (finding,) = instance("defrag-thold = 1").findings

    assert (finding.level, finding.message) == (
        Level.WARNING,
        "has no effect any more: remove it",
    )


def test_without_a_help_unknown_options_pass_but_numbers_are_still_checked(instance, told):
    resolved = instance("brand-new = 'x', ctx-size = '4k', host = 'h'", options=None)

    assert refused(resolved, told) == {
        "ctx-size": '"4k" is not a number: write ctx-size = 4096',
        "host": 'is set by llamasup: write listen = "127.0.0.1:1234" in the instance',
    }
    assert "--brand-new" in words(resolved)


def test_the_nearest_spelling_wins(known):
    layers = [(("far",), {"n-gpu-layers": 1, "warmup": True}), (("near",), {"gpu_layers": 2})]

    args, findings = merge([*layers, (("nearest",), {"no-warmup": True})], known)

    assert findings == []
    assert to_argv(args, known) == ["--gpu-layers", "2", "--no-warmup"]
    assert args["gpu-layers"].key == ("near", "gpu_layers")


# Measured on build 11434 with a model trained for 8192 tokens.
@pytest.mark.parametrize(
    ("values", "parallel", "context"),
    [
        ({}, 4, None),
        ({"ctx-size": 0}, 2, None),
        ({"ctx-size": 1000}, 1, 1024),
        ({"ctx-size": 4096}, 4, 1024),
        ({"ctx-size": 4000}, 3, 1536),
        ({"ctx-size": 1537}, 2, 1024),
        ({"ctx-size": 4000, "kv-unified": True}, 3, 4096),
        ({"ctx-size": 4096, "kv-unified": False}, 4, 1024),
        ({"ctx-size": 4096, "no-kv-unified": True}, 4, 1024),
        ({"ctx-size": 0, "kv-unified-per-slot": 1024}, 3, 1024),
        ({"ctx-size": 4096, "kv-unified-per-slot": 1000}, 3, 1000),
        ({"ctx-size": 2048, "kv-unified-per-slot": 1000}, 3, 768),
        ({"ctx-size": 4096, "kv-unified": True, "kv-unified-per-slot": 1000}, 3, 1000),
        ({"ctx-size": 4096, "kv-unified-per-slot": 0}, 2, 2048),
        ({"ctx-size": "8192"}, 2, 4096),
    ],
)
def test_the_context_of_a_slot(known, values, parallel, context):
    args, _findings = merge([((), values)], known)

    assert slot_context(args, parallel) == context
