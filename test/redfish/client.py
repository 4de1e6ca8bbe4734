"""Drives one computer system with sushy, the client of Ironic and metal3: what Ironic does to inspect, boot and clean a machine.

usage: client.py URL CERTIFICATE USER PASSWORD SYSTEM IMAGE
"""

import os
import sys

import sushy
from sushy import auth
from sushy import exceptions

url, certificate, user, password, name, image = sys.argv[1:]
for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # requests takes them instead of what it is told
    os.environ.pop(variable, None)
path = "/redfish/v1/Systems/" + name

basic = sushy.Sushy(url, verify=certificate, auth=auth.BasicAuth(user, password))
print("identity", basic.identity, "systems", sorted(s.identity for s in basic.get_system_collection().get_members()))
try:
    sushy.Sushy(url, verify=certificate, auth=auth.BasicAuth(user, "wrong")).get_system(path)
except exceptions.AccessError as e:
    print("wrong password", e.status_code)

root = sushy.Sushy(url, verify=certificate, auth=auth.SessionOrBasicAuth(user, password))
system = root.get_system(path)

# Inspection.
print("memory", system.memory_summary.size_gib, "cpus", system.processors.summary.count, "arch", system.processors.summary.architecture.value)
print("nics", sorted(system.ethernet_interfaces.summary), "disks", system.simple_storage.disks_sizes_bytes)
print("boot mode", system.boot.mode.value, "power", system.power_state.value, "chassis", len(system.chassis))
print("resets", sorted(r.value for r in system.get_allowed_reset_system_values()))

# Boot from a virtual medium, once.
cd = system.managers[0].virtual_media.get_members()[0]
cd.insert_media(image)
cd.refresh()
print("inserted", cd.inserted, cd.image == image, [m.value for m in cd.media_types])
system.set_system_boot_options(sushy.BootSource.CD, enabled=sushy.BootSourceOverrideEnabled.ONCE)
system.refresh()
print("override", system.boot.target.value, system.boot.enabled.value)
system.reset_system(sushy.ResetType.ON)
system.refresh()
print("power", system.power_state.value, "override", system.boot.enabled.value)

# A boot mode that the machine does not have, and values that nobody has.
try:
    system.set_system_boot_options(mode=sushy.BootSourceOverrideMode.UEFI)
except exceptions.HTTPError as e:
    print("mode", e.status_code, e.code)
try:
    root.get_system("/redfish/v1/Systems/nobody")
except exceptions.ResourceNotFoundError as e:
    print("nobody", e.status_code, e.code)

# Cleaning.
system.set_system_boot_options(sushy.BootSource.PXE, enabled=sushy.BootSourceOverrideEnabled.CONTINUOUS)
system.reset_system(sushy.ResetType.FORCE_OFF)
cd.eject_media()
cd.refresh()
system.refresh()
print("at the end", system.power_state.value, system.boot.target.value, system.boot.enabled.value, cd.inserted)
