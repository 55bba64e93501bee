"""The conformance program: does a driver, in whatever language, keep the contract? No cluster, one socket.

    anyvisor conform --endpoint unix:///run/x/hri.sock --fd-socket /run/x/fd.sock

Level 0 needs no VMM. The result is the evidence by which a capability may be called `supported`.
"""

from anyvisor.hri.conformance.bench import Figure
from anyvisor.hri.conformance.process import DriverStartError
from anyvisor.hri.conformance.report import Outcome, Report, Result, as_json, as_junit
from anyvisor.hri.conformance.runner import Options, run
from anyvisor.hri.conformance.session import Files, small_machine

__all__ = [
    "DriverStartError",
    "Figure",
    "Files",
    "Options",
    "Outcome",
    "Report",
    "Result",
    "as_json",
    "as_junit",
    "run",
    "small_machine",
]
