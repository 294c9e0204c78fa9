"""What each instance should do now. The first rule that applies wins."""

from llamasup.core.model import Down, Fleet, Goal, Haste, Override, Up


def desired(fleet: Fleet, name: str) -> Goal:
    """Return the goal of *name*.

    The first rule that applies wins: the daemon shuts down, removed from the configuration, the
    operator's override, autostart, and at last up.
    """
    if fleet.shutdown is not None:
        return Down("llamasup is shutting down", fleet.shutdown)
    conf = fleet.confs.get(name)
    if conf is None:
        return Down("removed from the configuration")
    override, haste = fleet.overrides.get(name), fleet.hastes.get(name, Haste.DRAIN)
    if override is Override.STOPPED:
        return Down("stopped by the operator", haste)
    if override is None and not conf.policy.autostart:
        return Down("not started yet (autostart = false)")
    return Up(conf.spec, fleet.serials.get(name, 0), haste)
