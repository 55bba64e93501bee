"""Typed models of the `kubevirt.io` API groups, one module per topic; `v1` offers `kubevirt.io/v1` whole."""
