"""What the front does with a request, for each phase and goal."""

from dataclasses import replace

import pytest

from llamasup.core.model import Down, Fleet, Phase
from llamasup.core.routes import Admission, Hold, Refuse, Serve, admissions
from tests.core.samples import A, B, instance

DOWN = Down("stopped by the operator")
REFUSED = Refuse("stopped by the operator")


@pytest.mark.parametrize(
    ("phase", "goal", "route"),
    [
        (Phase.STARTING, A, Hold("starting")),
        (Phase.LOADING, A, Hold("loading its model")),
        (Phase.WARMING, A, Hold("warming up")),
        (Phase.READY, A, Serve(3)),
        (Phase.UNREADY, A, Hold("its health probe fails")),
        (Phase.DRAINING, B, Hold("being restarted")),
        (Phase.STOPPING, B, Hold("being restarted")),
        (Phase.KILLING, B, Hold("being restarted")),
        (Phase.STUCK, B, Refuse("before", 60)),
        (Phase.BACKOFF, A, Hold("waiting for its next start")),
        (Phase.FAILED, A, Refuse("failed: before")),
        *((phase, DOWN, REFUSED) for phase in Phase if phase is not Phase.READY),
    ],
)
def test_the_route_follows_from_phase_and_goal(phase, goal, route):
    fleet = Fleet(instances={"chat": instance(phase, goal=goal)})

    assert admissions(fleet) == {"chat": Admission(route, max_held=7, hold_timeout=40.0)}


def test_a_crash_loop_is_told_at_once():
    """The next try is minutes away: the client should know why."""
    inst = replace(instance(Phase.BACKOFF, goal=A), looping=True)

    assert admissions(Fleet(instances={"chat": inst}))["chat"].route == Refuse("before", 60)
