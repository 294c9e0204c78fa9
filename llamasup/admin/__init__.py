"""The admin API: HTTP on a unix socket and, if configured, on TCP. It only asks and tells."""
