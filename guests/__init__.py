"""Guests written for tests and demonstrations, and how they are built from source and Debian packages."""
