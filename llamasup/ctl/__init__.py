"""llamasupctl, the command line. It speaks the admin API and imports nothing of the daemon."""
