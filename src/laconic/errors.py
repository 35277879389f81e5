"""What can go wrong, in the words the person at the keyboard will read."""


class LaconicError(Exception):
    """Base of every error laconic raises on purpose."""


class CorruptPayload(LaconicError, ValueError):
    """Bytes from the wire or from disk that no encoder of ours can have written."""


class BackendUnavailable(LaconicError, RuntimeError):
    """A kernel backend was asked for by name and cannot run here."""


class ExchangeFailed(LaconicError, RuntimeError):
    """Another rank stopped, or did not answer in time, while values were being averaged."""
