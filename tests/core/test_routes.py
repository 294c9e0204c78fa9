"""What the front does with a request, for each phase and goal."""

import pytest

from llamasup.core.model import Down, Fleet, Phase
from llamasup.core.routes import Admission, Hold, Refuse, Serve, admissions
from tests.core.samples import A, B, instance

DOWN = Down("stopped by the operator")
REFUSED = Refuse("chat: stopped by the operator")


@pytest.mark.parametrize(
    ("phase", "goal", "route"),
    [
        (Phase.STARTING, A, Hold("chat is starting")),
        (Phase.LOADING, A, Hold("chat is loading its model")),
        (Phase.WARMING, A, Hold("chat is warming up")),
        (Phase.READY, A, Serve(3)),
        (Phase.UNREADY, A, Hold("chat does not answer")),
        (Phase.DRAINING, B, Hold("chat is being restarted")),
        (Phase.STOPPING, B, Hold("chat is being restarted")),
        (Phase.KILLING, B, Hold("chat is being restarted")),
        (Phase.STUCK, B, Refuse("chat: before", 60)),
        (Phase.BACKOFF, A, Hold("chat waits for its next start")),
        (Phase.FAILED, A, Refuse("chat cannot run: before")),
        *((phase, DOWN, REFUSED) for phase in Phase if phase is not Phase.READY),
    ],
)
def test_the_route_follows_from_phase_and_goal(phase, goal, route):
    fleet = Fleet(instances={"chat": instance(phase, goal=goal)})

    assert admissions(fleet) == {"chat": Admission(route, max_held=7, hold_timeout=40.0)}
