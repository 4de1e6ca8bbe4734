#!/bin/sh
# Installs the Debian packages that are needed and not there yet: "deps.sh build" for building, "deps.sh demo" for that and the
# demo, "deps.sh test" for all tests, "deps.sh image" for test/image.sh. Starts no service and leaves none running. Run by make; needs root only if a package is missing.
# "deps.sh unpack" leaves in .cache what is only measured against, and cannot be installed beside the others.
set -eu

build="gcc libc6-dev xz-utils"
demo="
	iproute2 procps util-linux mount busybox-static bind9-dnsutils
	qemu-system-x86 qemu-utils ovmf seabios ipxe-qemu
	libvirt0 libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients
	syslinux syslinux-common mtools dosfstools
"
test="
	curl openssl strace systemd ipxe libxml2-utils libcap2-bin
	shim-signed grub-efi-amd64-signed pxelinux qemu-system-arm qemu-efi-aarch64 u-boot-qemu
	udhcpc isc-dhcp-client dhcpcd-base isc-dhcp-relay iputils-arping dnsmasq-base kea-admin kea-dhcp4-server isc-dhcp-server tcpdump
	knot knot-dnsutils dnsperf nsd unbound bind9 bind9-utils musl-tools
	genisoimage
	atftp tftp-hpa tftpd-hpa nftables haproxy nginx-light libnginx-mod-stream wrk nghttp2-client chromium ignition ipmitool openipmi
	etcd-server etcd-client prometheus
	swtpm swtpm-tools openvswitch-switch parted e2fsprogs iptables python3-pyghmi openssh-server netcat-openbsd
	python3-sushy
	debian-installer-12-netboot-amd64 debootstrap cpio
"
image="buildah debootstrap busybox-static bind9-dnsutils curl iproute2 util-linux mount"
case "${1:-test}" in
unpack)
	# tftpd-hpa and atftpd are in conflict: both want to be in.tftpd.
	[ -x .cache/atftpd/usr/sbin/atftpd ] && exit 0
	mkdir -p .cache
	cd .cache
	apt-get download -q atftpd >/dev/null 2>&1 || { echo "make deps: cannot download atftpd" >&2; exit 1; }
	dpkg-deb -x atftpd_*.deb atftpd
	rm -f atftpd_*.deb
	exit 0 ;;
build)
	# Any C compiler will do, also where there is no dpkg. xz packs the script into the boot program for BIOS.
	if command -v gcc >/dev/null && command -v xz >/dev/null; then exit 0; fi
	packages=$build ;;
demo) packages="$build $demo" ;;
test) packages="$build $demo $test" ;;
image) packages=$image ;;
*) echo "usage: $0 build|demo|test|image|unpack" >&2; exit 2 ;;
esac

missing=
for p in $packages; do
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
done
# The kernel of the tests' guest is downloaded, not installed: that too needs the package lists.
if [ -z "$missing" ] && apt-cache show systemd-boot-efi >/dev/null 2>&1; then
	exit 0
fi
if [ "$(id -u)" != 0 ]; then
	echo "make deps: not root, and these packages are missing:$missing" >&2
	exit 1
fi

log=$(mktemp)
quietly() {
	if ! "$@" >"$log" 2>&1 </dev/null; then
		cat "$log" >&2
		echo "make deps: failed: $*" >&2
		exit 1
	fi
}

# Debian's own switch against services that start while they are installed.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod 755 $policy
	trap 'rm -f $policy "$log"' EXIT
else
	trap 'rm -f "$log"' EXIT
fi
echo "apt-get install$missing"
quietly apt-get update -q
[ -z "$missing" ] || quietly env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
# Nor shall they start with the next boot.
for unit in haproxy nginx kea-dhcp4-server isc-dhcp-server isc-dhcp-relay libvirtd tftpd-hpa nftables knot nsd unbound named; do
	case " $missing " in *" $unit"*) systemctl disable --quiet "$unit" 2>/dev/null || true ;; esac
done
case " $missing " in *" openssh-server "*) systemctl disable --quiet ssh ssh.socket 2>/dev/null || true ;; esac
