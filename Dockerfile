# syntax=docker/dockerfile:1
#
# docker build -t bootlab .
# docker run --network host --cap-drop ALL --cap-add NET_BIND_SERVICE --cap-add NET_RAW --cap-add NET_ADMIN \
#   --read-only --tmpfs /run/bootlab:uid=64098,gid=64098,mode=0750 -v /etc/bootlab:/etc/bootlab:ro -v bootlab:/var/lib/bootlab bootlab
#
# A lost volume is noticed, before machines are installed again, by a marker beside the lab file. Create it once, and mount it writable:
#   install --owner 64098 --mode 600 /dev/null /etc/bootlab/.lab.yaml.bootlab-state
#   -v /etc/bootlab/.lab.yaml.bootlab-state:/etc/bootlab/.lab.yaml.bootlab-state
#
# It never runs as root: the user is 64098 (bootlab), who must be able to read /etc/bootlab, and the three capabilities are the
# program's own (setcap). They have no effect with --security-opt no-new-privileges; bootlab sets that itself once it has them.
#
# DHCP lives on broadcasts, which no port mapping carries: the container needs the host's network (--network host) or an
# interface of its own in the lab's network (macvlan). Rootless engines cannot give it ports 53, 67 and 69.
#
# Virtual machines of the host itself: add  -v /run/libvirt:/run/libvirt  and the host's group libvirt to user bootlab
# (build with --build-arg LIBVIRT_GID=$(getent group libvirt | cut -d: -f3)). Of other machines: qemu+ssh, with keys in
# /var/lib/bootlab/.ssh.

FROM golang:1.26-bookworm AS build
WORKDIR /src
# Modules first: they change less often than the source.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# The same as on a workstation. The libvirt binding looks for the library when it runs; no headers are needed here.
RUN make build

FROM debian:12-slim
ARG LIBVIRT_GID=64099
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates libcap2-bin libvirt0 openssh-client netcat-openbsd \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --system --gid "$LIBVIRT_GID" libvirt \
 && groupadd --system --gid 64098 bootlab \
 && useradd --system --uid 64098 --gid bootlab --groups libvirt --home-dir /var/lib/bootlab --shell /usr/sbin/nologin bootlab \
 && install --directory --owner bootlab --group bootlab --mode 0750 /var/lib/bootlab /run/bootlab \
 && install --directory /etc/bootlab
# In one step: a file that gets its capabilities in a later layer is stored twice. A feature that needs another capability
# needs it here and in docker run. With appliance.addresses: off it needs no NET_ADMIN.
RUN --mount=type=bind,from=build,source=/src/bin/bootlab,target=/mnt/bootlab \
    install --mode 0755 /mnt/bootlab /usr/local/bin/bootlab \
 && setcap cap_net_bind_service,cap_net_raw,cap_net_admin=p /usr/local/bin/bootlab
COPY configs /usr/share/doc/bootlab/configs
VOLUME ["/var/lib/bootlab"]
# Documentation only, with --network host: DHCP, TFTP, DNS, HTTP.
EXPOSE 67/udp 4011/udp 69/udp 53/udp 53/tcp 8080/tcp
# Its exit status is 1 while a server does not serve (docs/admin.md).
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s CMD ["bootlab", "status"]
STOPSIGNAL SIGTERM
# A number, so that Kubernetes' runAsNonRoot can tell that it is not root.
USER 64098
ENTRYPOINT ["bootlab"]
CMD ["serve"]
