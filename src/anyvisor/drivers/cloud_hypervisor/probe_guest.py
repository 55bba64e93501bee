"""A guest that tells whether KVM runs what kernels do: exceptions and returns, paging, locked exchanges, FPU state.

Assembled from probe_guest.S beside this module (a test compares them), and kept here since a node has no assembler.
It writes `RUNS` to COM1 when every step worked, else the number of the last good step or nothing.
"""

import base64
import zlib
from typing import Final

RUNS: Final = b"K"

_PACKED: Final = (
    "eNrtWD9oE1EY/17u8gc0vqekULRqDMZJjiQWKaKSRT3QITfVNaUJDlLBXEAnC1naJYtjN7tHIQiXWvE6BUGIFoSMQVCklepQVFSI33f3rk0iVB"
    "Eneb/h+/t7f75clve7d+na5RBjECAEF8HPhGfzsj51aIeCtSnQ0UYg7HGju/SBwPffgq2nh9tU1ql/0M+TLD/kE5Ie+GAb/S/XWW/t2Qj8OQQo"
    "KCgoKCgoKCgoKCgoKPw/+LEK0wI4G+sxARsJfPfGwKHHb71bd+svnadYKS+PF9C2w4cL1MZgAgOor70X5eVjBVp+9B0uf1G78Bkda2aqN9thEA"
    "K0pACM0GoZAc8AjVPDzVsQAliMhvHdDrV27M22Q2ye6vJkL57EdzpP9VrzAC7PxekJzzM86dZ63+O4bJ6n3I3XeK1x6IfpvE555au20N0qr0Dk"
    "0eTW9ubHgQG88cy220RieVFPZyyaRE/nLNqAokmLZjFpGOyftWicifQHmqeZq51P0xGh6t384zNZN7veIkHhCZlPJm/vT0NeAJLIsfzCZtVyqM"
    "cf8IbuFXnD53xZI+HCztCApGDggI6Gpex69jlnr2Rs8sZJj47BaS9oXv1lur7u3cnsDH7Hfh/NUsf396VfegjHwUUuJviZ+gysXV0jUFJI2Lle"
    "mvM1D6Nyo2LftoszYMzdsksGNQy7dMcGY7ZoF8GYqVT+yf9un9SNQjCs4wS6TmKEz0byMVmLjio20q2yvdcfkTVN5vQreV6ef26EHxvJT8iatn"
    "O8GLo/XNlbUBo8exAHpM526jfz/wSNAqtk"
)


def kernel() -> bytes:
    """The guest as a PVH kernel (ELF)."""
    return zlib.decompress(base64.b64decode(_PACKED))
