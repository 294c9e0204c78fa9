"""The pure core: it decides, and touches nothing. No I/O, no clock, no log, no random numbers."""
