"""A scriptable stand-in for llama-server: same command line, answers, log lines and signals.

It computes nothing, starts in milliseconds and misbehaves on demand (see `faults`). A program of
its own: nothing of the daemon imports it.
"""
