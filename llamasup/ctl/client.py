"""The admin API over a unix socket or a URL. Blocking; one connection per call."""

import grp
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote, urlencode, urlsplit

from llamasup.ctl.failures import Failure, NoSuchInstance, Unreachable

Json: TypeAlias = dict[str, object]

CALL_TIMEOUT = 10.0
"""Seconds that the daemon has to answer an ordinary call."""

SILENCE_TIMEOUT = 60.0
"""Seconds of silence after which a stream is given up; the daemon sends signs of life each 10."""

_IS_IT_RUNNING = "is it running? see: systemctl status llamasup"


class UnixConnection(http.client.HTTPConnection):
    """HTTP over the socket at *path*."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect to the path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Client:
    """Asks the daemon at *socket_path*, or at *url* if there is one, with *token* if any."""

    def __init__(self, socket_path: str, url: str | None = None, token: str | None = None) -> None:
        self._socket_path = socket_path
        self._url = url
        self._token = token

    @property
    def where(self) -> str:
        """What is asked, as the user named it."""
        return self._url or self._socket_path

    def status(self) -> Json:
        """Return the daemon and all instances."""
        return self._call("GET", "/v1/status")

    def command(self, name: str, verb: str, now: bool) -> Json:
        """Begin *verb* and return the operation."""
        return self._call("POST", f"/v1/instances/{quote(name, safe='')}/{verb}", {"now": now})

    def operation(self, operation_id: str, wait: float) -> Json:
        """Return the operation, after it ended or *wait* seconds."""
        path = f"/v1/operations/{quote(operation_id, safe='')}?wait={wait:.3f}"
        return self._call("GET", path, timeout=CALL_TIMEOUT + wait)

    def events(self, after: str | None, limit: int) -> Json:
        """Return the events after *after*, or the newest."""
        query = {"limit": str(limit)} | ({"after": after} if after else {})
        return self._call("GET", f"/v1/events?{urlencode(query)}")

    def follow_events(self, after: str) -> Iterator[Json]:
        """Yield each event after *after*, until the daemon goes."""
        path = f"/v1/events?{urlencode({'after': after})}"
        for line in self._stream(path, "text/event-stream", endless=True):
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))

    def logs(self, name: str, lines: int, follow: bool) -> Iterator[Json]:
        """Yield the last *lines*, and if *follow* each new one until the daemon goes."""
        query = urlencode({"lines": lines, "follow": int(follow)})
        path = f"/v1/instances/{quote(name, safe='')}/logs?{query}"
        for line in self._stream(path, "application/x-ndjson", endless=follow):
            if line:
                yield json.loads(line)

    def _call(
        self, method: str, path: str, body: Json | None = None, timeout: float = CALL_TIMEOUT
    ) -> Json:
        with self._connection(timeout) as connection:
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, self._headers("application/json"))
            answer = connection.getresponse()
            return self._body(answer)

    def _stream(self, path: str, accept: str, endless: bool) -> Iterator[str]:
        with self._connection(SILENCE_TIMEOUT) as connection:
            connection.request("GET", path, headers=self._headers(accept))
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                self._body(answer)
            while line := answer.readline():
                yield line.decode("utf-8", "replace").rstrip("\r\n")
            if endless:
                raise Unreachable(f"the daemon at {self.where} has ended the stream")

    def _headers(self, accept: str) -> dict[str, str]:
        headers = {"Accept": accept}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def _body(self, answer: http.client.HTTPResponse) -> Json:
        try:
            body = json.loads(answer.read())
        except ValueError as exc:
            message = f"what answers at {self.where} (HTTP {answer.status}) is not llamasup"
            raise Failure(message) from exc
        if isinstance(body, dict) and answer.status < 300:
            return body
        raise self._refused(answer.status, body)

    def _refused(self, status: int, body: object) -> Failure:
        match body:
            case {"error": {"code": "no_such_instance"}}:
                return NoSuchInstance("no instance has this name; see: llamasupctl status")
            case {"error": {"message": str(message)}}:
                return Failure(f"the daemon refuses: {message}")
            case _:
                return Failure(f"what answers at {self.where} (HTTP {status}) is not llamasup")

    @contextmanager
    def _connection(self, timeout: float) -> Iterator[http.client.HTTPConnection]:
        connection = self._new_connection(timeout)
        try:
            yield connection
        except TimeoutError as exc:
            message = f"the daemon at {self.where} does not answer; {_IS_IT_RUNNING}"
            raise Unreachable(message) from exc
        except PermissionError as exc:
            raise Unreachable(self._forbidden()) from exc
        except OSError as exc:
            reason = (exc.strerror or str(exc)).lower()
            message = f"cannot reach the daemon at {self.where}: {reason}; {_IS_IT_RUNNING}"
            raise Unreachable(message) from exc
        except http.client.HTTPException as exc:
            raise Unreachable(f"the daemon at {self.where} broke off the answer") from exc
        finally:
            connection.close()

    def _new_connection(self, timeout: float) -> http.client.HTTPConnection:
        if self._url is None:
            return UnixConnection(self._socket_path, timeout)
        parts = urlsplit(self._url)
        if parts.scheme == "https":
            return http.client.HTTPSConnection(parts.netloc, timeout=timeout)
        return http.client.HTTPConnection(parts.netloc, timeout=timeout)

    def _forbidden(self) -> str:
        message = f"no permission to use {self.where}"
        try:
            group = grp.getgrgid(Path(self._socket_path).stat().st_gid).gr_name
        except (OSError, KeyError):
            return f"{message}: use sudo, or ask for membership in its group"
        return f"{message}: use sudo, or add yourself to the group {group}"
