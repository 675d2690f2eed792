"""A guest with the real cloud-init applies its whole configuration, checked inside the guest.

An emulated guest takes minutes to boot. It is started before the first test (see conftest) and checked
after the last one.
"""

import pytest

from e2e.cloud_guest import BUILD_SECONDS, MARK, PASSWORD, USER, CloudGuest

INSIDE_SECONDS = 600


@pytest.mark.full  # the tiny guest of the tests runs a cloud-init seed too, in seconds
@pytest.mark.timeout(2 * INSIDE_SECONDS + BUILD_SECONDS)
def test_cloud_init_applies_the_whole_configuration(cloud_guest: CloudGuest) -> None:
    cloud_guest.wait_until_done(within=INSIDE_SECONDS)

    # With its SSH key, over the network.
    assert cloud_guest.ssh("hostname") == cloud_guest.name
    assert cloud_guest.ssh("cat", "/etc/by-user-data") == MARK
    assert cloud_guest.ssh("cat", "/etc/by-vendor-data") == MARK
    assert cloud_guest.ssh("cloud-init", "query", "ds.meta_data.shelf") == MARK
    assert "1400" in cloud_guest.ssh("cat", "/sys/class/net/e*/mtu")
    # With its password, on the serial console.
    cloud_guest.log_in(USER, PASSWORD, "echo uid=$(id -un)", answer=f"uid={USER}")
