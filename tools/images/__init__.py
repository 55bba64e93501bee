"""The container images: made without a container engine, and the same from the same input."""
