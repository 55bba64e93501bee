"""The rules for a VMI spec, one module per part of it; `spec` holds them together."""
