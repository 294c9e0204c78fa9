"""Probes: questions to a running llama-server. They report facts and decide nothing."""
