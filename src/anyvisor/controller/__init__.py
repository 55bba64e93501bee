"""Controllers: pure reconcile cores per kind, and thin shells that read caches and write patches."""
