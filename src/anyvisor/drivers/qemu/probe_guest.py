"""A guest that tells whether an accelerator runs what kernels do: exceptions and IRET in 32 and 64 bits, paging, XSAVE.

Assembled from guests/kvmprobe/probe.S (a test compares them), and kept here since a node has no assembler. It ends
QEMU through isa-debug-exit at port 0xf4 with status `RUNS`.
"""

import base64
import zlib
from typing import Final

RUNS: Final = 33
"""QEMU's exit status when every step worked: 2 * 0x10 + 1."""

_PACKED: Final = (
    "eNrtWE1oE0EUfrvJJAGJM5UIwb8uhUgvLl1BzcGmvdjswZ8gOeRqIWmRUsFE8CIWUqFBmovH6sXitV43KLg9hVohtaeAl8WL0l4C"
    "DShEiO9tNukmgge9zsfOe2/mfW933rCX+Z7euDmnKgr0oUIKejPh2llvfe3UgIJrSeTNAoOgyw0f031Bzy+qvZmTG04HvZH13ptV"
    "xZCPefS+D4KEhISEhISEhISEhISEhMS/4td7JyeAK6eTePE+iOH1PAIWXcGrzapd3bPe4UphM55BW2dnMpTG4BwGUN3+LgqbFzJU"
    "fj6F5Z/K07fRKY+W6gyEgIAmACO0gSkBHwCNVcZX10AFqIQZgAbleuRr2yI2n2hyzYlqIcDQqa0A2PxylKQJPsU1u+x0oli2wifs"
    "g13cVBy6jL7WMOxD+NZuH3Z823abMtfZSaw216cX7gAUKuFCPa3GcfvpIFRN2nwlHSJfSUewg6vIxQ6S6FSLVAv+7CNQOUu65axD"
    "M6SvsSMSRBIttNYkEaHJlZ/ucz1B8gjXmtjN/TjWBjCfMXct0kn4az7Gnqcw2GKrros+Qfdjm/SN0iR1T0IHdm/scGXPolpjnyuf"
    "+VYi6/Iv3UrRjq7M6W5fMzirkUJzZL4xbGPf+GLstExej17ERItvsyXMvXzFDfdo3EPqMhJizAYfXx36D7pdNBuNnn/h+Y23g/wC"
    "mcox/xqekoBxbE7ADGgZ4XtXX9shaSeXX+6JPnpxsVh6WLo3D3op/7gE+vKDUl6ntD5fLP73f3wCB51xaLAihtxddZgvRurHoKdj"
    "9WkDPcrTp2Ij/FE96iyOCI7A4AOe/uXVOyb8dQOKv9aHfr0Gf/L9+A0hVK1I"
)


def kernel() -> bytes:
    """The guest as a PVH kernel (ELF)."""
    return zlib.decompress(base64.b64decode(_PACKED))
