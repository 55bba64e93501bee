"""The two selectors of a list, watch or deletion: read from the query, and matched as one."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from anyvisor.api import selectors as api
from anyvisor.embedded.apiserver.status import bad_request

_NO_FIELDS = api.FieldSelector()


@dataclass(frozen=True, slots=True)
class Selector:
    """Both selectors of a request; empty, hence false, when every object matches."""

    labels: api.Selector = api.EVERYTHING
    fields: api.FieldSelector = _NO_FIELDS

    def __bool__(self) -> bool:
        return bool(self.labels.requirements or self.fields.terms)

    def matches(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
        return self.labels.matches(labels) and self.fields.matches(lambda field: fields.get(field, ""))

    def required(self, field: str) -> str | None:
        """Return the value that `field` must have, if the selector says one."""
        return self.fields.exact(field)

    def without(self, fields: Collection[str]) -> "Selector":
        """Return what remains to be matched where `fields` are known to have their required values."""
        terms = (term for term in self.fields.terms if term.field not in fields or not term.equal)
        return Selector(self.labels, api.FieldSelector(tuple(terms)))


EVERYTHING = Selector()


def read(labels: str, fields: str) -> Selector:
    """Read both selectors. Raises a 400 Status for a malformed one."""
    try:
        return Selector(api.parse_selector(labels), api.parse_field_selector(fields))
    except api.SelectorError as error:
        raise bad_request(str(error)) from error


def parse(labels: str, fields: str, allowed: Collection[str]) -> Selector:
    """Read both selectors. Raises a 400 Status for a malformed one, and for a field that is not `allowed`."""
    found = read(labels, fields)
    for term in found.fields.terms:
        if term.field not in allowed:
            raise bad_request(f'field label not supported: "{term.field}"')
    return found
