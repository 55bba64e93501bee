"""Metrics as text, read back by the reference parser."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from anyvisor.api.exposition import Exposition, Metric, label_text, object_labels

METRICS = (Metric("a_total", "counter", "A."), Metric("b", "gauge", "B."), Metric("c", "gauge", "C."))


@given(st.dictionaries(st.sampled_from(["x", "y"]), st.text()), st.floats(allow_nan=False, allow_infinity=False))
def test_every_label_and_value_survives(labels: dict[str, str], value: float) -> None:
    out = Exposition(METRICS)
    out.add("b", label_text(labels), value)
    (family,) = text_string_to_metric_families(out.text().decode())
    (sample,) = family.samples
    assert (sample.labels, sample.value) == (labels, value)


def test_samples_of_a_metric_stand_together_and_unknown_values_are_absent() -> None:
    out = Exposition(METRICS)
    for name in ("a_total", "b", "a_total"):
        out.add(name, 'n="1"', 5)
    out.add("c", "", None)
    assert out.text().decode() == (
        '# HELP a_total A.\n# TYPE a_total counter\na_total{n="1"} 5\na_total{n="1"} 5\n'
        '# HELP b B.\n# TYPE b gauge\nb{n="1"} 5\n'
    )


def test_labels_of_objects() -> None:
    assert object_labels("p_", {"app.kubernetes.io/name": "x"}) == {"p_app_kubernetes_io_name": "x"}
