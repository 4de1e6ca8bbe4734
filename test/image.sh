#!/bin/sh
# Builds the container image from the Dockerfile as it is, without a container engine or a registry, and serves from it as docker run would:
# as user 64098, on a read-only root, with three capabilities and no others; then with appliance.addresses: off, and two. Each time a machine gets
# its address, a name and an answer by HTTP.
#
#   test/image.sh [FOLDER]     (root; keeps the base images in FOLDER, .cache/image; some ten minutes the first time)
#
# The base images are made of Debian's packages and of this machine's Go. buildah needs no daemon: isolation chroot, storage vfs.
set -eu
work=${1:-.cache/image}
debian=docker.io/library/debian:12-slim
go=docker.io/library/golang:1.26-bookworm
for p in buildah debootstrap unshare setpriv ip busybox dig curl go; do
	command -v "$p" >/dev/null || { echo "$p is missing: apt-get install buildah debootstrap busybox bind9-dnsutils curl" >&2; exit 1; }
done
mkdir -p "$work"
work=$(realpath "$work")
b() { buildah --root "$work/root" --runroot "$work/run" --storage-driver vfs "$@"; }
export BUILDAH_ISOLATION=chroot

if ! b inspect --type image "$debian" >/dev/null 2>&1; then
	rm -rf "$work/debian"
	debootstrap --variant=minbase bookworm "$work/debian" http://deb.debian.org/debian
	c=$(b from scratch)
	b add -q "$c" "$work/debian" / && b commit -q --rm "$c" "$debian"
	rm -rf "$work/debian"
fi
if ! b inspect --type image "$go" >/dev/null 2>&1; then
	c=$(b from --pull-never "$debian")
	b run "$c" -- sh -c 'apt-get update -q && apt-get install -qy --no-install-recommends make gcc libc6-dev git ca-certificates'
	b add -q "$c" "$(go env GOROOT)" /usr/local/go
	b config --env PATH=/go/bin:/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --env GOPATH=/go \
		--env GOTOOLCHAIN=local --env GOPROXY="$(go env GOPROXY)" --env SSL_CERT_FILE=/host/ca-certificates.crt "$c"
	b commit -q --rm "$c" "$go"
fi
b bud --format docker --pull-never --layers=false --volume /etc/ssl/certs:/host:ro -t bootlab .

c=$(b from --pull-never localhost/bootlab)
trap 'b rm "$c" >/dev/null' EXIT
root=$(b mount "$c")
user=$(b inspect --type image --format '{{.Docker.Config.User}}' localhost/bootlab)
test "$user" = 64098 || { echo "the image runs as user $user" >&2; exit 1; }
test "$(stat -c %u:%g "$root/var/lib/bootlab")" = 64098:64098 || { echo "/var/lib/bootlab is not of 64098:64098" >&2; exit 1; }

for addresses in on off; do
cat >"$root/etc/bootlab/lab.yaml" <<LAB
version: 1
lab: image
domain: image.test
appliance: {addresses: $addresses}
networks: {n: {subnet: 10.126.11.0/24, interface: br0, address: 10.126.11.1}}
profiles: {disk: {ipxe: disk.ipxe}}
hosts: {a: {mac: "52:54:00:12:61:01", ip: 10.126.11.21, profile: disk}}
LAB
mkdir -p "$root/etc/bootlab/files" && printf '#!ipxe\nexit\n' >"$root/etc/bootlab/files/disk.ipxe"
chmod -R a+rX "$root/etc/bootlab"

unshare --mount --net --pid --fork --kill-child sh -eu -s "$root" "$addresses" <<'RUN'
root=$1
bounds=-all,+net_bind_service,+net_raw,+net_admin
mask=0x3400 # of these three
if [ "$2" = off ]; then bounds=-all,+net_bind_service,+net_raw mask=0x2400; fi
mount --bind "$root" "$root"
mount --bind -o ro "$root" "$root"
mount -t tmpfs -o uid=64098,gid=64098,mode=0750 tmpfs "$root/run/bootlab"
mount -t tmpfs -o uid=64098,gid=64098,mode=0750 tmpfs "$root/var/lib/bootlab"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
ip link set lo up
ip link add br0 type bridge
ip link add port type veth peer name machine address 52:54:00:12:61:01
ip link set port master br0 up
ip link set machine up
ip addr add 10.126.11.1/24 dev br0
ip link set br0 up
chroot "$root" setpriv --reuid 64098 --regid 64098 --clear-groups --inh-caps=-all --bounding-set="$bounds" \
	bootlab serve &
daemon=$!
for i in $(seq 300); do
	curl -fs http://127.0.0.1:9680/readyz >/dev/null 2>&1 && break
	sleep 0.1
done
curl -fsS http://127.0.0.1:9680/readyz
grep -E '^(Uid|CapPrm|CapBnd):' "$root/proc/$daemon/status"
grep -qE '^Uid:[[:space:]]+64098[[:space:]]+64098' "$root/proc/$daemon/status"
test $((0x$(sed -n 's/^CapPrm:[[:space:]]*//p' "$root/proc/$daemon/status"))) = $((mask))
busybox udhcpc -i machine -n -q -f -t 10 -T 1 -s /bin/true
test "$(dig +short +time=5 @10.126.11.1 a.image.test)" = 10.126.11.21
ip addr add 10.126.11.21/24 dev machine
curl -fsS http://10.126.11.1:8080/files/ >/dev/null 2>&1 || test $? = 22 # it answers
RUN
done
echo "the image builds, and serves DHCP, DNS and HTTP as user 64098 with three capabilities, and with two"
