"""What can go wrong with an expression."""


class CelError(Exception):
    """Evaluation failed: a missing key, a wrong type, an overflow, or the budget is used up."""


class CelSyntaxError(ValueError):
    """The expression cannot be compiled; the message says where and why."""
