"""What a typical VMI costs to read, complete and write: decode to its type, defaults of admission, encode."""

import json

import msgspec

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.defaults.filler import Filler
from anyvisor.admission.defaults.spec import fill_common, fill_instance
from anyvisor.api.kubevirt.vmi import VirtualMachineInstance
from tests.bench.measure import report
from tests.bench.test_admission import cost, vmi

AIM_MS = 1.0


def test_decode_default_and_encode_of_a_typical_vmi() -> None:
    obj = vmi(6, 2)
    obj["spec"]["volumes"][-1]["cloudInitNoCloud"]["userData"] += "# words of an operator\n" * 60
    text = json.dumps(obj).encode()
    config, decoder = ClusterConfig.of(), msgspec.json.Decoder(VirtualMachineInstance)

    def whole() -> bytes:
        read = msgspec.json.decode(text)
        fill_common(read["spec"], "spec", config, Filler())
        fill_instance(read["spec"], "spec", config, Filler(), firmware_uuid="6a1c9f4e")
        return msgspec.json.encode(read)

    typed = cost(lambda: msgspec.json.encode(decoder.decode(text)), 20)
    defaulted = cost(whole, 20)
    copied = cost(lambda: json.dumps(json.loads(text)), 20)
    report(
        f"a VMI of {len(text) / 1024:.1f} KiB, milliseconds of CPU",
        [
            f"decode to its type, encode          {typed * 1e3:7.3f}",
            f"decode, defaults, encode            {defaulted * 1e3:7.3f}",
            f"the sum (aim: well under {AIM_MS:g})        {(typed + defaulted) * 1e3:7.3f}",
            f"a copy by the standard library      {copied * 1e3:7.3f}",
        ],
    )
    assert typed + defaulted < 25 * copied
