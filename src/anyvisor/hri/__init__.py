"""The hypervisor runtime interface: specification, client, driver kit, fake driver, conformance."""
