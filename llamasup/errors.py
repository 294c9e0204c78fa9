"""The error tree: one class for each thing that a caller tells apart."""


class LlamasupError(Exception):
    """Anything llamasup raises on purpose; its text is fit for the user."""


class ConfigError(LlamasupError):
    """The configuration cannot be used; the text lists every problem, one a line."""


class SpawnError(LlamasupError):
    """A child could not be started at all. *hopeless*: trying again mends nothing."""

    def __init__(self, message: str, *, hopeless: bool = False) -> None:
        super().__init__(message)
        self.hopeless = hopeless


class AlreadyRunningError(LlamasupError):
    """Another daemon owns the runtime folder."""


class InvalidTransitionError(LlamasupError):
    """The core was given an event that its table does not know in this phase: a bug of ours."""


class UnknownInstanceError(LlamasupError):
    """No instance has this name."""


class ListenError(LlamasupError):
    """An address or a socket path cannot be listened on."""
