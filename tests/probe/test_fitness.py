"""The comparison of what is asked for with what a server reports."""

import pytest

from llamasup.probe.fitness import judge
from tests.probe.conftest import spec

PROPS = {
    "model_alias": "tiny",
    "model_path": "/fake/m.gguf",
    "total_slots": 2,
    "default_generation_settings": {"n_ctx": 1024},
}
SLOTS = [{"id": 0, "n_ctx": 1024}, {"id": 1, "n_ctx": 1024}]


@pytest.mark.parametrize(
    ("wanted", "slots"),
    [
        (spec(), SLOTS),
        (spec(), {"error": {}}),  # --no-slots: /props has it too
        (spec(aliases=("other", "tiny")), SLOTS),
        (spec(aliases=()), SLOTS),
        (spec(slot_context=None), SLOTS),
        (spec(slot_context=1000), SLOTS),  # rounded up by llama-server
    ],
)
def test_what_is_as_asked_for_fits(wanted, slots):
    assert judge(wanted, PROPS, slots) is None


@pytest.mark.parametrize(
    ("wanted", "props", "slots", "parts"),
    [
        (spec(aliases=("big",)), PROPS, SLOTS, ["alias big", "alias tiny"]),
        (spec(aliases=(), model="/m/b.gguf"), PROPS, SLOTS, ["/m/b.gguf", "/fake/m.gguf"]),
        (spec(parallel=4), PROPS, SLOTS, ["4 slots", "reports 2", "parallel = 2"]),
        (spec(parallel=1), PROPS, SLOTS, ["1 slots", "reports 2"]),
        (spec(parallel=4), PROPS, None, ["4 slots", "reports 2"]),
        (spec(slot_context=4096), PROPS, SLOTS, ["4096 tokens", "1024", "ctx-size"]),
        (spec(slot_context=512), PROPS, SLOTS, ["512 tokens", "1024"]),
        (spec(), PROPS, [SLOTS[0], {"id": 1, "n_ctx": 512}], ["1024 tokens", "512"]),
        (spec(), {}, SLOTS, ["alias None"]),
        (spec(aliases=()), [], SLOTS, ["the model None"]),
        (spec(), PROPS, [1, 2], ["None"]),
    ],
)
def test_what_is_not_as_asked_for_is_told_with_both_values(wanted, props, slots, parts):
    reason = judge(wanted, props, slots)

    assert reason is not None
    assert [part for part in parts if part not in reason] == []
