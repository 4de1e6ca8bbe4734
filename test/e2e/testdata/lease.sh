#!/bin/sh
# What udhcpc calls.
[ "$1" = bound ] || exit 0
ip addr add "$ip/$mask" dev "$interface"
[ -z "$router" ] || ip route add default via "${router%% *}"
for s in $dns; do echo "nameserver $s"; done >/etc/resolv.conf
hostname "$hostname"
