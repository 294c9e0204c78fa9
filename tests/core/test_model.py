"""What the values of the core know of themselves."""

from dataclasses import replace

from llamasup.core.model import (
    Instance,
    Up,
)
from tests.core.samples import POLICY, spec


def test_an_instance_wakes_at_the_earlier_of_its_two_deadlines():
    inst = Instance("chat", POLICY, Up(spec()))

    assert inst.wakes_at is None
    assert replace(inst, deadline=2.0).wakes_at == 2.0
    assert replace(inst, give_up_at=3.0).wakes_at == 3.0
    assert replace(inst, deadline=4.0, give_up_at=3.0).wakes_at == 3.0
