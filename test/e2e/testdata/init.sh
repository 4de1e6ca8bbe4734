#!/bin/sh
# The first process of an installer that is a small Debian in memory: takes an address, fetches its document, and runs it.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/busybox HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
echo 4 >/proc/sys/kernel/printk

stop() { # restarts (b) or powers off (o)
	sync
	sleep 1
	echo "$1" >/proc/sysrq-trigger
	sleep 600
}
fail() {
	echo "INSTALLER failed: $*"
	stop o
}
arg() { tr ' ' '\n' </proc/cmdline | sed -n "s/^$1=//p" | tail -n 1; }

busybox mkdir -p /busybox && busybox --install -s /busybox
for module in virtio_pci virtio_net virtio_blk virtio_rng ext4; do modprobe -q $module; done
ip link set lo up
nic=$(ls /sys/class/net | grep -v '^lo$' | head -n 1)
ip link set "$nic" up
udhcpc -f -q -n -t 8 -T 2 -i "$nic" -s /lease.sh || fail "no lease"
wget -q -O /install.sh "$(arg config)" || fail "no document"
echo "INSTALLER begins on $(hostname)"
sh -e /install.sh || fail "its document"
echo "INSTALLER is done"
stop b
