#!/bin/busybox sh
# The first and only process of the guest: installer or installed system.
export PATH=/bin
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev 2>/dev/null
exec </dev/console >/dev/console 2>&1
echo 4 >/proc/sys/kernel/printk

say() { echo "GUEST $*"; }
arg() { tr ' ' '\n' </proc/cmdline | sed -n "s/^$1=//p" | tail -n 1; }
doc() { sed -n "s/^$1=//p" /tmp/config 2>/dev/null | tail -n 1; }
value() { v=$(doc "$1"); echo "${v:-$(arg "bootlab.$1")}"; }
fail() { say "failed: $*"; sync; sleep 1; poweroff -f; }

# get FILE URL fetches and tries again for a while, as installers do: the appliance may be restarting.
get() {
	for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		timeout 120 wget -q -O "$1" "$2" && return 0
		sleep 1
	done
	return 1
}

# What the installer leaves to the installed system lies here, in the gap before the first partition.
note_at=1000 # in sectors of 512 bytes
note_write() { { cat /tmp/config; echo; } | dd of="$1" bs=512 seek=$note_at count=8 conv=sync,notrunc 2>/dev/null; }
note_read() { dd if="$1" bs=512 skip=$note_at count=8 2>/dev/null | tr -d '\000' >/tmp/config; }

find_nic() {
	want=$(arg BOOTIF | sed 's/^01-//' | tr 'A-Z-' 'a-z:')
	for try in 1 2 3 4 5 6 7 8 9 10; do
		for nic in /sys/class/net/*; do
			[ -e "$nic/device" ] || continue
			[ -z "$want" ] || [ "$want" = "$(cat "$nic/address")" ] || continue
			basename "$nic"
			return
		done
		usleep 200000
	done
}

network() {
	nic=$(find_nic)
	[ -n "$nic" ] || fail "no network card"
	ip link set lo up
	ip link set "$nic" up
	udhcpc -f -q -n -t 8 -T 2 -i "$nic" -s /lease.sh -O staticroutes -O search -O ntpsrv -O mtu -O hostname -O 250 ||
		fail "no lease"
}

resolve() {
	for name in $(value names | tr ',' ' '); do
		say "name $name = $(nslookup "$name" 2>/dev/null | sed '1,/^$/d' | sed -n 's/^Address[^:]*: *//p' | sort | tr '\n' ' ')"
	done
}

# answer does what Proxmox' installer does for its configuration: it POSTs what it found in the machine to where DHCP says.
answer() {
	[ -e /proxmox.iso ] || fail "no proxmox.iso beside the initrd"
	say "medium bytes=$(wc -c </proxmox.iso)"
	nics="{\"link\":\"lo\",\"mac\":\"00:00:00:00:00:00\"},{\"link\":\"$nic\",\"mac\":\"$(cat "/sys/class/net/$nic/address")\"}"
	wget -q -O /tmp/answer --header 'Content-Type: application/json; charset=utf-8' \
		--post-data "{\"product\":{\"product\":\"pve\"},\"network_interfaces\":[$nics]}" "$(cat /tmp/answer-url)" ||
		fail "answer $(cat /tmp/answer-url)"
	sed 's/ = /=/; s/"//g' /tmp/answer >/tmp/config
	say "answer bytes=$(wc -c </tmp/answer)"
}

installer() {
	! grep -q proxmox-start-auto-installer /proc/cmdline || answer
	config=$(arg bootlab.config)
	if [ -n "$config" ]; then
		get /tmp/config "$config" || fail "config $config"
		say "config bytes=$(wc -c </tmp/config)"
	fi
	resolve
	message=$(doc message)
	[ -z "$message" ] || say "message $message"
	hold=$(doc hold)
	[ -z "$hold" ] || until timeout 120 wget -q -O /dev/null "$hold"; do sleep 1; done
	image=$(value image)
	if [ -z "$image" ]; then
		say "nothing to install"
		return
	fi
	disk=$(value disk)
	[ -b "${disk:=/dev/vda}" ] || fail "no disk $disk"
	say "writing $disk"
	get /tmp/image "$image" || fail "image $image"
	dd if=/tmp/image of="$disk" bs=1M conv=fsync 2>/dev/null || fail "write $disk"
	[ ! -e /tmp/config ] || note_write "$disk"
	sync
	say "written $disk bytes=$(wc -c </tmp/image)"
	done=$(value done)
	[ -z "$done" ] || get /dev/null "$done" || fail "done $done"
	say "install done"
	sync
	reboot -f
}

installed() {
	say "installed system booted from disk"
	for disk in /dev/vda /dev/sda; do
		[ -b "$disk" ] && note_read "$disk" && break
	done
	network
	resolve
	message=$(doc message)
	[ -z "$message" ] || say "message $message"
	check=$(doc check)
	[ -z "$check" ] || say "check $(wget -q -O - "$check" 2>&1 | head -n 1)"
	say "installed system up"
	sync
	case $(doc then) in
	poweroff) poweroff -f ;;
	reboot) reboot -f ;;
	esac
}

for module in $(cat /modules/order); do
	insmod "/modules/$module" || say "module $module does not load"
done
[ -d /sys/firmware/efi ] && firmware=uefi || firmware=bios
say "kernel $(uname -r) firmware=$firmware uptime=$(cut -d ' ' -f 1 /proc/uptime)"
if [ -n "$(arg bootlab.installed)" ]; then
	installed
else
	network
	installer
fi
say "resting"
while :; do sleep 3600; done
