"""A short ``--help`` in llama-server's form, and short ways from TOML to results."""

import tomllib
from collections.abc import Callable, Mapping

import pytest

from llamasup.config import schema
from llamasup.config.options import Options, parse_help
from llamasup.config.problem import dotted
from llamasup.config.resolve import Outside, Resolved, resolve

HELP = """\
----- common params -----

-h,    --help, --usage                  print usage and exit
--list-devices                          print list of available devices and exit
-t,    --threads N                      number of CPU threads (default: -1)
                                        (env: LLAMA_ARG_THREADS)
-c,    --ctx-size N                     size of the prompt context (default: 0, 0 = the model's)
                                        (env: LLAMA_ARG_CTX_SIZE)
-fa,   --flash-attn [on|off|auto]       set Flash Attention use ('on', 'off', default: 'auto')
-dt,   --defrag-thold N                 some threshold (DEPRECATED)
-kvo,  --kv-offload, -nkvo, --no-kv-offload
                                        whether to offload the KV cache (default: enabled)
--no-host                               bypass the host buffer
-ngl,  --gpu-layers, --n-gpu-layers N   layers to store in VRAM, either an exact number,
                                        'auto', or 'all' (default: auto)
-lm,   --load-mode MODE                 model loading mode (default: auto)
                                        - none: no special loading mode
-ot,   --override-tensor <tensor name pattern>=<buffer type>,...
                                        override tensor buffer type
--poll <0...100>                        polling level (0 - no polling, default: 50)
--lora FNAME                            path to an adapter
--control-vector-layer-range START END
                                        layer range to apply the control vectors to
-m,    --model FNAME                    model path to load

----- sampling params -----

--temp, --temperature N                 temperature (default: 0.80)

----- example-specific params -----

--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max or
                                        --spec-ngram-mod-n-max
                                        (env: LLAMA_ARG_DRAFT_MAX)
--spec-old-thing N                      the argument has been removed. use --spec-new-thing
-kvu,  --kv-unified, -no-kvu, --no-kv-unified
                                        use one KV buffer for all (default: enabled if auto)
--kv-unified-per-slot N                 context limit per slot (default: unset)
-cram, --cache-ram N                    cache size in MiB (default: 8192)
--warmup, --no-warmup                   whether to warm up (default: enabled)
--pooling {none,mean,cls,last,rank}     pooling type for embeddings
-np,   --parallel N                     number of server slots (default: -1, -1 = auto)
--mmproj-auto, --no-mmproj, --no-mmproj-auto
                                        whether to use a projector file (default: enabled)
--embedding, --embeddings               restrict to embeddings (default: disabled)
--rerank, --reranking                   enable reranking (default: disabled)
--chat-template-kwargs STRING           JSON for the template
--sse-ping-interval N                   SSE ping interval in seconds (default: 30)
--metrics                               enable the metrics endpoint (default: disabled)
--jinja, --no-jinja                     whether to use jinja (default: enabled)
--slots, --no-slots                     expose slots (default: enabled)
--sleep-idle-seconds SECONDS            seconds of idleness before sleep (default: -1; -1 = off)
--gpt-oss-20b-default                   use gpt-oss-20b (note: can download weights)
"""

BINARY = "/bin/llama-server"


@pytest.fixture
def known() -> Options:
    """What the short help lists."""
    return parse_help(HELP)


Resolve = Callable[..., Resolved]


def _resolve(
    text: str, known: Options | None = None, *, lowest_port: int = 1024, **secrets: object
) -> Resolved:
    parsed = schema.parse(tomllib.loads(text))
    assert parsed.findings == ()
    by_binary = {} if known is None else {BINARY: known}
    return resolve(parsed.model, Outside(lowest_port=lowest_port, **secrets), by_binary)


@pytest.fixture
def resolved() -> Resolve:
    """Resolve a text without mistakes in its form; *known* are the options of ``BINARY``."""
    return _resolve


@pytest.fixture
def instance(known: Options) -> Resolve:
    """Resolve one instance named chat with *args* (and more keys of it, in TOML)."""

    def resolve_one(args: str = "", more: str = "", *, options: Options | None = known) -> Resolved:
        text = f"""
            defaults.binary = "{BINARY}"
            [instances.chat]
            listen = "127.0.0.1:1234"
            model = "/m.gguf"
            {more}
            args = {{ {args} }}
        """
        return _resolve(text, options)

    return resolve_one


@pytest.fixture
def told() -> Callable[[Resolved], Mapping[str, str]]:
    """Map the keys of the findings to their messages."""
    return lambda resolved: {dotted(f.key): f.message for f in resolved.findings}
