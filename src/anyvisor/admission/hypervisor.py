"""The one field that this project adds to a VMI spec: `hypervisor`, the class that runs the guest."""

from anyvisor.admission.names import SUBDOMAIN_RULE, is_subdomain
from anyvisor.admission.result import Causes
from anyvisor.admission.values import Obj, shown
from anyvisor.api.hypervisor import PREFERENCES, automatic, unknown_preferences

FIELD = "hypervisor"


def check(at: str, spec: Obj, out: Causes) -> None:
    """A class's name, `auto`, or empty for the default class."""
    named = spec.get(FIELD)
    if named is None or named == "":
        return
    where = f"{at}.{FIELD}"
    if type(named) is str and automatic(named) and not unknown_preferences(named):
        return
    if type(named) is not str or not is_subdomain(named):
        out.invalid(
            where,
            f"{where} is {shown(named)}; give the name of a HypervisorClass ({SUBDOMAIN_RULE}), 'auto', 'auto/' and "
            f"what counts ({', '.join(PREFERENCES)}), or nothing for the default class",
        )


def keep(at: str, spec: Obj, old_spec: Obj, warnings: list[str]) -> None:
    """Carry the field over when an update leaves it out.

    Clients with a typed model of the original API drop fields that they do not know; only an explicit value is a
    change (an empty one asks for the default class).
    """
    if FIELD not in spec and old_spec.get(FIELD):
        spec[FIELD] = old_spec[FIELD]
        warnings.append(
            f"{at}.{FIELD} was left out and keeps its value {shown(old_spec[FIELD])}; set it to change it "
            "(an empty text asks for the default class)"
        )
