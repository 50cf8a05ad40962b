"""Errors that callers may want to tell apart. Everything else is a `ValueError` or a `TypeError` that names its argument."""

from __future__ import annotations


class BackendUnavailable(RuntimeError):
    """A backend asked for by name cannot run here; the message says why, for each candidate."""


class DecodeError(RuntimeError):
    """A media file cannot be read.

    Attributes:
        path: the file.
        position: where in it: "open", "index", or a time such as "at 9.300 s".
        reason: what went wrong there.
    """

    def __init__(self, path: str, position: str, reason: str) -> None:
        super().__init__(f"{path}: {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason

    def __reduce__(self) -> tuple[type[DecodeError], tuple[str, str, str]]:
        return type(self), (self.path, self.position, self.reason)


class RefusedMedia(DecodeError):
    """A file that is not opened on purpose: a playlist, a script, an unknown container, or one beyond the caps."""


class InputError(ValueError):
    """Something from outside (a file, a field, a folder) cannot be used. One line that says what and where."""


class ModelLoadError(InputError):
    """A model that cannot be loaded: no such folder, an unsupported family, files or weights missing or not matching."""


class DataError(InputError):
    """A data file that does not follow its schema; the message names file, line and field."""
