"""A management controller of pyghmi, the library that virtualbmc serves IPMI with: bmc.py PORT DIR

DIR/power holds on or off, DIR/done gets a line for each command, as from a hypervisor.
"""
import pathlib
import sys

from pyghmi.ipmi import bmc

directory = pathlib.Path(sys.argv[2])


class Controller(bmc.Bmc):
    def done(self, line, power=None):
        if power:
            (directory / "power").write_text(power)
        with open(directory / "done", "a") as f:
            f.write(line + "\n")

    def get_power_state(self):
        return int((directory / "power").read_text() == "on")

    def power_on(self):
        self.done("on", "on")

    def power_off(self):
        self.done("off", "off")

    def get_boot_device(self):
        return "default"

    def set_boot_device(self, device):
        self.done("boot " + device)


Controller({"admin": "calvin"}, port=int(sys.argv[1]), address="127.0.0.1").listen()
