"""What each instance should do: the first rule that applies wins."""

from dataclasses import replace

import pytest

from llamasup.core.desired import desired
from llamasup.core.model import Down, Fleet, Haste, Override, Up
from tests.core.samples import POLICY, conf, spec

AUTO = {"chat": conf()}
MANUAL = {"chat": conf(policy=replace(POLICY, autostart=False))}
STOPPED, STARTED = {"chat": Override.STOPPED}, {"chat": Override.STARTED}
KILL = {"chat": Haste.KILL}


@pytest.mark.parametrize(
    ("fleet", "goal"),
    [
        (Fleet(confs=AUTO), Up(spec())),
        (Fleet(confs=MANUAL), Down("not started yet (autostart = false)")),
        (Fleet(confs=MANUAL, overrides=STARTED), Up(spec())),
        (Fleet(confs=AUTO, overrides=STOPPED), Down("stopped by the operator")),
        (
            Fleet(confs=AUTO, overrides=STOPPED, hastes=KILL),
            Down("stopped by the operator", Haste.KILL),
        ),
        (
            Fleet(confs=AUTO, overrides=STARTED, serials={"chat": 2}, hastes=KILL),
            Up(spec(), 2, Haste.KILL),
        ),
        (Fleet(confs=AUTO, overrides={"embed": Override.STOPPED}), Up(spec())),
        (Fleet(overrides=STARTED, hastes=KILL), Down("removed from the configuration")),
        (
            Fleet(confs=AUTO, overrides=STARTED, hastes=KILL, shutdown=Haste.DRAIN),
            Down("llamasup is shutting down", Haste.DRAIN),
        ),
        (Fleet(shutdown=Haste.STOP), Down("llamasup is shutting down", Haste.STOP)),
    ],
)
def test_the_first_rule_that_applies_wins(fleet, goal):
    assert desired(fleet, "chat") == goal
