"""The Common Expression Language as far as Kubernetes' validation rules use it (cel.dev, KEP-2876).

`compile_rule` refuses, with a sentence, what is not implemented; evaluation is bounded by a budget of steps.
"""

from anyvisor.embedded.apiserver.cel.errors import CelError, CelSyntaxError
from anyvisor.embedded.apiserver.cel.program import Budget, Program, compile_rule

__all__ = ["Budget", "CelError", "CelSyntaxError", "Program", "compile_rule"]
