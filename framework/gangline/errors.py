"""Every exception that Gangline raises on purpose.

    GanglineError
    |-- InvalidObject         an object or a value in it cannot be used (path, value, why)
    |   `-- InvalidQuantity   a resource quantity does not parse
    |-- ConfigError           a configuration file cannot be used (file, path, why)
    |-- TraceError            a line of a trace cannot be used (file, line, column, why)
    |-- PluginError           a plugin is missing, broken or raised (plugin, point, why)
    |-- ExpressionError       a CEL expression (why)
    |   |-- InvalidExpression it does not compile
    |   `-- ExpressionFailed  it has no value for this device
    |-- DeadlineExceeded      a decision took longer than it may (seconds)
    |-- AskLater              somebody asks more than may be answered now (why, seconds)
    |-- LeadershipLost        this process led and no longer may (lease, why)
    |-- ExtenderError         an HTTP extender failed, or answered what it may not (url, verb, why)
    |-- ClusterError          a command cannot read the cluster (where, why, advice)
    `-- ApiError              the API server answered with a failure (status, reason, message)
        |-- NotFound          404
        |-- Conflict          409: stale resourceVersion, or the object is already there
        |-- Gone              410: the resourceVersion is too old, list again
        |-- Forbidden         403
        |-- Invalid           422 or 400
        |-- TooManyRequests   429, with retry_after in seconds
        `-- Unavailable       5xx, a broken connection or a time-out: worth another try
            `-- WatchFailed   the server has ended a watch and says an error: list again

An error carries data and builds its text in ``__str__``; foreign errors are translated at the border.
"""

from __future__ import annotations


class GanglineError(Exception):
    """The root of the tree."""

    exit_code = 1
    """The exit code of a process that the error ends."""


_LONGEST_VALUE = 200
"""Characters of a wrong value that an error shows."""


class InvalidObject(GanglineError):
    """A value in an object cannot be used; ``path`` is the path of the value."""

    def __init__(self, path: str, value: object, why: str) -> None:
        super().__init__(path, value, why)
        self.path = path
        self.value = value
        self.why = why

    def __str__(self) -> str:
        shown = "" if self.value is None else repr(self.value)
        if len(shown) > _LONGEST_VALUE:
            shown = f"{shown[:_LONGEST_VALUE]}..."
        return ": ".join(part for part in (self.path, shown, self.why) if part)


class MissingClass(InvalidObject):
    """A request for devices names a DeviceClass that does not exist."""

    def __init__(self, path: str, request: str, name: str) -> None:
        super().__init__(path, name, f"request {request}: device class {name} does not exist")

    def __str__(self) -> str:
        return self.why


class InvalidQuantity(InvalidObject):
    """A resource quantity does not parse."""


class ConfigError(GanglineError):
    """A configuration file cannot be used."""

    def __init__(self, file: str, path: str, why: str) -> None:
        super().__init__(file, path, why)
        self.file = file
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.path, self.why) if part)


class TraceError(GanglineError):
    """A trace cannot be used; a line of 0 stands for the whole file."""

    def __init__(self, file: str, line: int, column: str, why: str) -> None:
        super().__init__(file, line, column, why)
        self.file = file
        self.line = line
        self.column = column
        self.why = why

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(part for part in (where, self.column, self.why) if part)


class PluginError(GanglineError):
    """A plugin is missing or broken, or one of its methods raised."""

    def __init__(self, plugin: str, point: str, why: str) -> None:
        super().__init__(plugin, point, why)
        self.plugin = plugin
        self.point = point
        self.why = why
        self.is_counted = False
        """Whether the error has already been counted and logged."""

    def __str__(self) -> str:
        where = f" at {self.point}" if self.point else ""
        return f"plugin {self.plugin}{where}: {self.why}"


class ExpressionError(GanglineError):
    """A CEL expression cannot be used."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return self.why


class InvalidExpression(ExpressionError):
    """A CEL expression does not compile."""


class ExpressionFailed(ExpressionError):
    """A CEL expression fails on the values that it was given."""


class DeadlineExceeded(GanglineError):
    """A decision took too long; the cluster is in order, and nothing has changed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def __str__(self) -> str:
        return f"the decision took longer than {self.seconds:g} s of CPU time"


class AskLater(GanglineError):
    """Somebody asks more than may be answered now; the same question may be asked again in so many whole seconds."""

    def __init__(self, why: str, seconds: int) -> None:
        super().__init__(why, seconds)
        self.why = why
        self.seconds = seconds

    def __str__(self) -> str:
        return f"{self.why}: ask again in {self.seconds} s"


class LeadershipLost(GanglineError):
    """The lease could not be renewed or another process holds it; the process has to end and start again."""

    exit_code = 3

    def __init__(self, lease: str, why: str) -> None:
        super().__init__(lease, why)
        self.lease = lease
        self.why = why

    def __str__(self) -> str:
        return f"lost the lease {self.lease}: {self.why}"


class ExtenderError(GanglineError):
    """An HTTP extender did not answer, reported an error, or answered what it may not; ``url`` is its urlPrefix."""

    def __init__(self, url: str, verb: str, why: str) -> None:
        super().__init__(url, verb, why)
        self.url = url
        self.verb = verb
        self.why = why

    def __str__(self) -> str:
        return f"extender {self.url}: {self.verb}: {self.why}"


class ClusterError(GanglineError):
    """A command cannot read the cluster; ``where`` names the context and the API server."""

    exit_code = 4

    def __init__(self, where: str, why: str, advice: str) -> None:
        super().__init__(where, why, advice)
        self.where = where
        self.why = why
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.where}: {self.why}; {self.advice}"


class NotAllowed(ClusterError):
    """The API server knows the user, who may not do what the command does."""

    exit_code = 5


class ApiError(GanglineError):
    """The API server refused a request, or did not answer."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.status} {self.reason}: {self.message}" if self.status else self.message


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409: the resourceVersion is stale, or the object is already there."""


class Gone(ApiError):
    """410: the resourceVersion is too old; list again."""


class Forbidden(ApiError):
    """403."""


class Invalid(ApiError):
    """400 or 422: the request will never be accepted as it is."""


class TooManyRequests(ApiError):
    """429; ``retry_after`` holds the seconds that the server asks for."""


class Unavailable(ApiError):
    """5xx, a broken connection or a time-out: worth another try."""


class WatchFailed(Unavailable):
    """A watch came to an error, or to what is no event, so a watch from the same version may come to it again."""
