"""Writes tiny models that a real llama-server loads in milliseconds. For the demo and the tests.

The weights are random but fixed: the same call gives the same bytes. The models talk nonsense made
of whole words, and every request runs for exactly ``max_tokens`` tokens, since the end token is
never likely. Needs numpy and gguf, which the daemon does not.
"""

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

_SYLLABLES = ["ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ra", "se", "ti", "vo", "zu"]
_SPECIALS = ["<unk>", "<s>", "</s>"]
_TEMPLATE = (
    "{% for message in messages %}[{{ message.role }}] {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
_SPACE = "\u2581"  # how SentencePiece writes a blank
_ALIGN = 32  # tokens; rows stay whole quantisation blocks


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a model. More layers and a wider one make it slower, for tests in mid-flight."""

    width: int = 96
    layers: int = 2
    heads: int = 3
    hidden: int = 192
    context: int = 32768


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    tokens: list[str]
    scores: list[float]
    types: list[int]

    @property
    def speakable(self) -> npt.NDArray[np.bool_]:
        """Return which tokens the model may say: words, and nothing that would be half a letter."""
        return np.array([t == gguf.TokenType.NORMAL for t in self.types])


def write_chat_model(path: Path, shape: Shape | None = None) -> None:
    """Write a model for chat, completions and, with ``--pooling mean``, embeddings."""
    _write(path, "llama", shape or Shape(), reranks=False)


def write_rerank_model(path: Path, shape: Shape | None = None) -> None:
    """Write a model for ``--rerank``."""
    _write(path, "qwen3", shape or Shape(), reranks=True)


def _vocabulary() -> _Vocabulary:
    """Return specials, one token for each byte, the printable letters and made-up words."""
    words = [_SPACE + first + second for first in _SYLLABLES for second in _SYLLABLES]
    letters = [_SPACE, *(chr(code) for code in range(ord("!"), ord("~") + 1))]
    pieces = letters + words
    kind = gguf.TokenType
    tokens = [*_SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    types = [kind.UNKNOWN, kind.CONTROL, kind.CONTROL] + [kind.BYTE] * 256
    types += [kind.NORMAL] * len(pieces)
    scores = [0.0] * (len(_SPECIALS) + 256) + [-float(rank) for rank in range(len(pieces))]
    while len(tokens) % _ALIGN:
        tokens.append(f"<unused{len(tokens)}>")
        types.append(kind.UNUSED)
        scores.append(0.0)
    return _Vocabulary(tokens, scores, [int(each) for each in types])


def _write(path: Path, architecture: str, shape: Shape, *, reranks: bool) -> None:
    vocabulary = _vocabulary()
    writer = gguf.GGUFWriter(path, architecture)
    _write_settings(writer, shape, vocabulary)
    writer.add_add_eos_token(reranks)  # a reranker separates query and document with it
    if reranks:
        writer.add_classifier_output_labels(["yes", "no"])
    _Weights(writer, np.random.default_rng(11434)).write(shape, vocabulary, reranks=reranks)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_settings(writer: gguf.GGUFWriter, shape: Shape, vocabulary: _Vocabulary) -> None:
    head = shape.width // shape.heads
    writer.add_name("llamasup tiny")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(1)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(vocabulary.tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_scores(vocabulary.scores)
    writer.add_token_types(vocabulary.types)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template(_TEMPLATE)


class _Weights:
    """Adds tensors to a writer in a fixed order, with fixed random values."""

    def __init__(self, writer: gguf.GGUFWriter, random: np.random.Generator) -> None:
        self._writer = writer
        self._random = random

    def write(self, shape: Shape, vocabulary: _Vocabulary, *, reranks: bool) -> None:
        """Add every tensor of the model."""
        count, width, head = len(vocabulary.tokens), shape.width, shape.width // shape.heads
        self._matrix("token_embd", count, width, gain=width**0.5)
        for layer in range(shape.layers):
            block = f"blk.{layer}"
            self._norm(f"{block}.attn_norm", width)
            self._matrix(f"{block}.attn_q", shape.heads * head, width)
            self._matrix(f"{block}.attn_k", head, width)
            self._matrix(f"{block}.attn_v", head, width)
            self._matrix(f"{block}.attn_output", width, shape.heads * head)
            if reranks:
                self._norm(f"{block}.attn_q_norm", head)
                self._norm(f"{block}.attn_k_norm", head)
            self._norm(f"{block}.ffn_norm", width)
            self._matrix(f"{block}.ffn_gate", shape.hidden, width)
            self._matrix(f"{block}.ffn_up", shape.hidden, width)
            self._matrix(f"{block}.ffn_down", width, shape.hidden)
        self._norm("output_norm", width)
        # A row of zeros gives the logit 0, far below the forty best that sampling looks at.
        self._matrix("output", count, width, gain=4.0, rows=vocabulary.speakable)
        if reranks:
            self._matrix("cls.output", 2, width)

    def _matrix(
        self,
        name: str,
        height: int,
        width: int,
        *,
        gain: float = 1.0,
        rows: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        values = self._random.standard_normal((height, width), dtype=np.float32)
        values *= gain / np.sqrt(width)
        if rows is not None:
            values[~rows] = 0.0
        self._writer.add_tensor(f"{name}.weight", values.astype(np.float16))

    def _norm(self, name: str, width: int) -> None:
        self._writer.add_tensor(f"{name}.weight", np.ones(width, dtype=np.float32))
