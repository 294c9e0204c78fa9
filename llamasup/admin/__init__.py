"""The admin API: HTTP on a unix socket and on TCP."""
