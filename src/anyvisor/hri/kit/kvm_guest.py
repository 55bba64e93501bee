"""A guest that tells whether an accelerator runs what kernels do: exceptions and returns, paging, locks, FPU state.

A driver starts it as a kernel (PVH, 64-bit ELF, a few MiB of memory) and looks at what it says by any of its ways:
one character on COM1; QEMU's exit status, by isa-debug-exit at port 0xf4; it then switches off by port 0x600.

Assembled from guests/kvmprobe/probe.S (a test compares them), and kept here since a node has no assembler.
"""

import base64
import zlib
from typing import Final

RUNS: Final = b"K"
"""What it says on COM1 when every step worked; else the number of the last step that did, or nothing."""
EXIT_RUNS: Final = 2 * RUNS[0] + 1
"""The same as an exit status by isa-debug-exit."""

_PACKED: Final = (
    "eNrtWE1oE0EUfrvJJIESZlsixN+uhYAIhiQqejC1BzULFQyCGI8WEotIBBPRkxbTQnJILl6E6sXitQpB2cSKKR6CWEjtKXhavCgVQsWAFZX43maT"
    "JlE86HU+Mu+9mfnezL7JXOa7ffL0KVmSoAMZxqHdU0w7YY3rI10Kjh1F3gQwsJtc5xa9J2j7e3K7Z8T6p+1Wm7XWnZWVPu+x6B1vBwEBAQEBAQEB"
    "AQEBAQEBgX/FjyUjpgCXtk3jw3vdg89zF+j0BC/UC5XCqv4CRxIL3ijaKtsRpWkMdmEAheWPSmJhT5TSdycxfSUTvoVOKgauX6kyUBSwqQpghNYW"
    "UOAloNEzuHgJZICckwGokKm63jd1YvOxOlcNt+oADI3SDECFh9wkTvAAVysZ47sb02b4WGX9HX6WF1qM9qtl64nypq3Bn7360HxyKFEGR6P56WdP"
    "FWaNWp6FcCktH46dAUjknIlqRPZiNRE7FDSqJRdxkM9FXFjQeeSuFEOZMAUynzNwtWAluFYixeM5mQ2NV91L4wCZ8FO0UvEgnysD7cAc5g7sG/Vw"
    "xSz7jFHW1yAhZR8aDnUubZq/Yz4SVLhax+ovezHXhvNR7Y1OW/CHfJhdwMX5IjtrOvckuq/LpIik99NpkTSCpxV8zaVVnXKDa1x6q/FF315koj+w"
    "nXz+8IjfLH4IeyVSdb5oj4KVDb7MbmDn/gMeLE7++SBb7BzVUeOjJ7buTauFZr7W9nctP/+4O3+JTG6LfwQC+FeNYmkKHAc1qvTcwY4WRFJQLJ5s"
    "i0T+1HQqfS19cQr86fjNNPiTV9NxP037p1Kp/773Q9johB3dEaXP3ZH7+cpA/jC0da8OratfWXqWZ4A/qF/txObCZutuYOllVr6hwV8/QOrN7UEn"
    "X4Xf+b34BU7PxW4="
)


def kernel() -> bytes:
    """The guest as a kernel."""
    return zlib.decompress(base64.b64decode(_PACKED))
