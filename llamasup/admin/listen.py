"""Opens the sockets of the admin API; nothing here speaks HTTP."""

import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

from llamasup.errors import AlreadyRunningError, ListenError
from llamasup.paths import LONGEST_SOCKET_PATH

SOCKET_MODE = 0o660


@dataclass(frozen=True, slots=True)
class UnixListener:
    """A bound socket and the file it made."""

    path: str
    sock: socket.socket
    inode: int

    def remove(self) -> None:
        """Close the socket and remove its file, unless another has taken its place."""
        self.sock.close()
        try:
            if os.lstat(self.path).st_ino == self.inode:
                Path(self.path).unlink()
        except FileNotFoundError:
            return


def bind_unix(path: str) -> UnixListener:
    """Return a socket bound to *path* with mode 0660, in place of a stale one.

    Raises `AlreadyRunningError` if somebody answers there, `ListenError` for anything else.
    """
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        message = f"cannot listen on {path}: longer than {LONGEST_SOCKET_PATH} bytes"
        raise ListenError(message)
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The umask and not a chmod afterwards: at no moment may others connect. It belongs to the whole
    # process, so nothing may be awaited before it is back.
    before = os.umask(0o777 & ~SOCKET_MODE)
    try:
        sock.bind(path)
    except OSError as exc:
        sock.close()
        raise ListenError(f"cannot listen on {path}: {exc.strerror}") from exc
    finally:
        os.umask(before)
    sock.setblocking(False)
    return UnixListener(path, sock, os.lstat(path).st_ino)


def _remove_stale(path: str) -> None:
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as exc:
        raise ListenError(f"cannot listen on {path}: {exc.strerror}") from exc
    if not stat.S_ISSOCK(kind):
        raise ListenError(f"cannot listen on {path}: something else than a socket is there")
    if _answers(path):
        raise AlreadyRunningError(f"cannot listen on {path}: another daemon answers there")
    Path(path).unlink(missing_ok=True)


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        # Not blocking: a full backlog (EAGAIN) means that somebody listens, if slowly.
        caller.setblocking(False)
        try:
            caller.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
        return True
