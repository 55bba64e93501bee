"""The image store: files of imported images, content-addressed and shared read-only by machines."""
