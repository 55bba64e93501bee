"""A TPM: device, helper, the way between them, and what helps when there is no emulator."""

from dataclasses import replace

import pytest

from anyvisor.drivers.qemu.translate import translate
from anyvisor.hri.errors import Refused
from anyvisor.hri.v1.machine_pb2 import Helper
from anyvisor.hri.v1.machine_spec_pb2 import Machine, Tpm
from tests.unit.qemu.test_translate import HOST, device, machine, refused, values

WITH_TPM = replace(HOST, tpm="/usr/bin/swtpm")


def tpm_machine(model: str = "", handle: str = "") -> Machine:
    made = machine()
    made.devices.add(id="tpm.0", tpm=Tpm(model=model, handle=handle))
    return made


@pytest.mark.parametrize(("model", "driver"), [("", "tpm-crb"), ("crb", "tpm-crb"), ("tis", "tpm-tis")])
def test_device_and_emulator_speak_over_a_pair(model: str, driver: str) -> None:
    result = translate(tpm_machine(model, "state/tpm"), WITH_TPM)
    assert device(result, "device-tpm.0")["driver"] == driver
    [pair], [helper] = result.launch.pairs, result.launch.helpers
    number = {slot.handle: slot.number for slot in result.launch.descriptors}[pair.first]
    assert f"socket,id=tpm,fd={number}" in values(result, "chardev")
    own = {slot.handle: slot for slot in helper.descriptors}
    assert set(own) == {pair.second, "state/tpm"}
    assert own["state/tpm"].reopened
    assert helper.argv[0] == "/usr/bin/swtpm"
    assert f"type=unixio,clientfd={own[pair.second].number}" in helper.argv
    assert f"backend-uri=file:///proc/self/fd/{own['state/tpm'].number}" in helper.argv
    assert helper.on_exit == Helper.ON_EXIT_IGNORE


def test_a_state_that_is_not_kept_is_made_by_the_agent() -> None:
    result = translate(tpm_machine(), WITH_TPM)
    [seed] = result.launch.seeds
    assert seed.content == b""
    assert seed.handle in {slot.handle for slot in result.launch.helpers[0].descriptors}


def test_what_cannot_be_is_refused() -> None:
    assert refused(tpm_machine("spi"), WITH_TPM) == {"devices[0].tpm.model"}
    with pytest.raises(Refused, match="apt-get install swtpm"):
        translate(tpm_machine(), HOST)
