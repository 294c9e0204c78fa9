"""llamasupctl, the command line: it speaks HTTP with the daemon and imports nothing of it."""
