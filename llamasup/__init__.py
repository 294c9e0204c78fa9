"""llamasup: one daemon that owns every llama-server of a Linux box."""

__version__ = "0.1.0"
