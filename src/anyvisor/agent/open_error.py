"""The error of what a VMI names and its guest cannot be given."""


class OpenError(Exception):
    """A volume or a network cannot be opened for the guest.

    `field` is the path in the VMI's spec; `reason` a CamelCase word for conditions and events; `retry` tells whether
    waiting may help.
    """

    def __init__(self, field: str, reason: str, message: str, *, retry: bool) -> None:
        super().__init__(message)
        self.field, self.reason, self.retry = field, reason, retry
