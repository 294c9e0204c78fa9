"""Reading ``--help``: a short one here, the real one where it is marked."""

import os
import subprocess

import pytest

from llamasup.config.options import FALLBACK, Option, did_you_mean, parse_help


def test_an_option_with_a_value(known):
    assert known.by_name["ctx-size"] == Option(
        "ctx-size", short=("c",), value="N", env="LLAMA_ARG_CTX_SIZE", default="0"
    )


def test_spellings_of_one_option_share_it(known):
    layers = known.by_name["gpu-layers"]

    assert known.by_name["n-gpu-layers"] is layers
    assert known.by_short["ngl"] is layers
    assert layers.words == {"auto", "all"}


def test_a_switch_and_its_negative_form(known):
    assert known.by_name["kv-offload"] == Option(
        "kv-offload", short=("kvo",), negation="no-kv-offload", default="enabled"
    )
    assert known.by_name["no-kv-offload"] == Option(
        "no-kv-offload", short=("nkvo",), negates="kv-offload"
    )


def test_the_negative_form_of_the_first_name_is_preferred(known):
    assert known.by_name["mmproj-auto"].negation == "no-mmproj-auto"


def test_a_lonely_no_is_a_plain_flag(known):
    assert known.by_name["no-host"] == Option("no-host")


def test_a_value_form_with_blanks_is_one_value(known):
    option = known.by_name["override-tensor"]

    assert (option.value, option.value_count) == (
        "<tensor name pattern>=<buffer type>,...",
        1,
    )


def test_two_values_are_counted(known):
    assert known.by_name["control-vector-layer-range"].value_count == 2


@pytest.mark.parametrize(
    ("name", "is_number", "is_whole"),
    [
        ("ctx-size", True, True),
        ("temp", True, False),
        ("poll", True, True),
        ("sleep-idle-seconds", True, True),
        ("gpu-layers", True, False),
        ("flash-attn", False, False),
        ("metrics", False, False),
    ],
)
def test_numbers_are_recognised(known, name, is_number, is_whole):
    option = known.by_name[name]

    assert (option.is_number, option.is_whole) == (is_number, is_whole)


def test_a_removed_option_carries_the_binary_s_sentence(known):
    assert known.by_name["draft"].removed == (
        "the argument has been removed. use --spec-draft-n-max or --spec-ngram-mod-n-max"
    )
    assert known.by_name["defrag-thold"].has_no_effect


def test_subject_is_one_name_for_all_spellings(known):
    names = ("n-gpu-layers", "no-warmup", "embeddings", "unheard-of")

    assert [known.subject(name) for name in names] == [
        "gpu-layers",
        "warmup",
        "embedding",
        "unheard-of",
    ]


def test_only_a_complete_list_lacks_an_option(known):
    assert known.lacks("unheard-of")
    assert not known.lacks("ctx-size")
    assert not FALLBACK.lacks("unheard-of")


def test_text_that_is_no_help_has_no_options():
    assert parse_help("usage: something else\n  --model\n").by_name == {}


def test_did_you_mean():
    assert did_you_mean("ctx-sise", ["ctx-size", "threads"]) == "ctx-size"
    assert did_you_mean("zzz", ["ctx-size"]) is None


@pytest.mark.real
def test_the_real_help_agrees_with_what_is_known_without_it():
    """Every usual option has the same form in the real binary, so asking changes no argv."""
    binary = os.environ["LLAMASUP_LLAMA_SERVER"]
    text = subprocess.run([binary, "--help"], capture_output=True, text=True, check=True).stdout
    real = parse_help(text)

    for name, usual in FALLBACK.by_name.items():
        found = real.by_name[name]
        assert (found.name, found.negation, found.negates, found.is_number, found.words) == (
            usual.name,
            usual.negation,
            usual.negates,
            usual.is_number,
            found.words if not usual.words else usual.words,
        ), name
        assert (found.value is None) == (usual.value is None)
        assert set(usual.short) <= set(found.short)
    assert len(real.by_name) > 250
