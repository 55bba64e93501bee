"""The users of an instance's components; their rights are in the API server's bootstrap roles."""

from anyvisor.embedded.apiserver.identity import Identity

CONTROLLER = Identity("system:anyvisor:controller").with_authenticated()
GATEWAY = Identity("system:anyvisor:gateway").with_authenticated()
SCHEDULER = Identity("system:anyvisor:scheduler").with_authenticated()
ENDPOINT_SLICES = Identity("system:controller:endpointslice-controller").with_authenticated()
