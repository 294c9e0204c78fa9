"""The status page: one HTML text without scripts or other files. Pure."""

from html import escape

from llamasup.admin.views import moment
from llamasup.core.status import InstanceStatus, Status

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .7rem; border-bottom: 1px solid #8884; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.phase { font-weight: 600; }
.ready { color: #2a9d4a; } .failed, .stuck, .unready { color: #d33; }
.backoff, .waiting, .draining, .stopping, .killing { color: #c80; }
.starting, .loading, .warming { color: #38c; } .stopped { color: #888; }
"""

_COLUMNS = (
    "Instance",
    "Phase",
    "Since (UTC)",
    "Pid",
    "Gen",
    "Listen",
    "Restarts",
    "In flight / held",
    "Model",
    "Reason",
)


def status_page(status: Status) -> str:
    """Return the page for *status*."""
    daemon = status.daemon
    head = "".join(f"<th>{escape(title)}</th>" for title in _COLUMNS)
    rows = "".join(map(_row, status.instances))
    state = " (stopping)" if daemon.shutting_down else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>llamasup: {escape(daemon.summary)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>llamasup <small>{escape(daemon.summary)}{state}</small></h1>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<p>Version {escape(daemon.version)}, pid {daemon.pid}, up since "
        f"{moment(daemon.started)}, {escape(daemon.config)}. "
        '<a href="/v1/status">status</a> · <a href="/v1/events">events</a> · '
        '<a href="/openapi.json">API</a></p></body></html>'
    )


def _row(row: InstanceStatus) -> str:
    pid = "" if row.pid is None else str(row.pid)
    return (
        f"<tr><td>{escape(row.name)}</td>"
        f'<td class="phase {escape(row.phase)}">{escape(row.phase)}</td>'
        f"<td>{moment(row.since)[:19].replace('T', ' ')}</td>"
        f'<td class="number">{pid}</td><td class="number">{row.generation}</td>'
        f"<td>{escape(row.listen)}</td>"
        f'<td class="number">{row.restarts}</td>'
        f'<td class="number">{row.in_flight} / {row.held}</td>'
        f"<td>{escape(row.model)}</td><td>{escape(row.reason)}</td></tr>"
    )
