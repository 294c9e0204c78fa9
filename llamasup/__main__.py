"""Run the daemon as ``python -m llamasup``."""

from llamasup.daemon import main

main()
