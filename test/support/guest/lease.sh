#!/bin/busybox sh
# What udhcpc calls: puts the lease into force and tells it on the console.
# RFC 3442: a client that gets classless routes (option 121) ignores the router (option 3).
export PATH=/bin
case $1 in
deconfig)
	ip addr flush dev "$interface"
	;;
bound | renew)
	[ -z "$mtu" ] || ip link set "$interface" mtu "$mtu"
	ip addr add "$ip/$mask" dev "$interface"
	if [ -n "$staticroutes" ]; then
		set -- $staticroutes
		while [ $# -ge 2 ]; do
			ip route add "$1" via "$2"
			shift 2
		done
	else
		for r in $router; do
			ip route add default via "$r"
			break
		done
	fi
	: >/etc/resolv.conf
	[ -z "$search$domain" ] || echo "search ${search:-$domain}" >>/etc/resolv.conf
	for s in $dns; do
		echo "nameserver $s" >>/etc/resolv.conf
	done
	[ -z "$hostname" ] || hostname "$hostname"
	# Option 250 comes as hexadecimal digits: where Proxmox' installer asks for its answer.
	[ -z "$opt250" ] || printf "$(echo "$opt250" | sed 's/../\\x&/g')" >/tmp/answer-url
	echo "GUEST lease ip=$ip/$mask router=${router:--} routes='$staticroutes' dns='$dns' domain=${domain:--} search='$search' hostname=${hostname:--} ntp='$ntpsrv' mtu=${mtu:--} server=$serverid lease=$lease"
	;;
esac
