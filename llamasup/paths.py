"""Names of the files that llamasup makes, in one place. Pure: nothing here touches a disk."""

LONGEST_SOCKET_PATH = 107
"""Bytes of a unix socket's path that Linux takes (``sun_path`` less the final zero)."""


def socket_path(runtime_dir: str, name: str, gen: int) -> str:
    """Return the private socket of *gen*; llama-server takes a host that ends in .sock for one."""
    return f"{runtime_dir}/{name}.{gen}.sock"


def lock_path(runtime_dir: str, name: str) -> str:
    """Return the lock that every process of the instance holds open for as long as it lives."""
    return f"{runtime_dir}/{name}.lock"


def daemon_lock_path(runtime_dir: str) -> str:
    """Return the lock that the one daemon of *runtime_dir* holds; it contains the daemon's pid."""
    return f"{runtime_dir}/llamasup.pid"


def empty_config_home(runtime_dir: str) -> str:
    """Return the folder that children get as XDG_CONFIG_HOME, so no stray config.ini is read."""
    return f"{runtime_dir}/empty"
