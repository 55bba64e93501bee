"""The API types: metadata, quantities, names, the `kubevirt.io` and `anyvisor.io` kinds and their CRDs.

Pure: nothing here does I/O or knows a clock. Typed models are for reading; writes are patches or plain dicts.
"""
