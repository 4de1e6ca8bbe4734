# syntax=docker/dockerfile:1
#
# docker build -t bootlab .
# docker run --network host -v /etc/bootlab:/etc/bootlab:ro -v bootlab:/var/lib/bootlab bootlab
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
 && apt-get install --yes --no-install-recommends ca-certificates libvirt0 openssh-client netcat-openbsd \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --system --gid "$LIBVIRT_GID" libvirt \
 && useradd --system --user-group --groups libvirt --home-dir /var/lib/bootlab --shell /usr/sbin/nologin bootlab \
 && install --directory --owner bootlab --group bootlab --mode 0750 /var/lib/bootlab \
 && install --directory /etc/bootlab
COPY --from=build /src/bin/bootlab /usr/local/bin/bootlab
COPY configs /usr/share/doc/bootlab/configs
VOLUME ["/var/lib/bootlab"]
# Documentation only, with --network host: DHCP, TFTP, DNS, HTTP.
EXPOSE 67/udp 4011/udp 69/udp 53/udp 53/tcp 8080/tcp
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s CMD ["bootlab", "status"]
STOPSIGNAL SIGTERM
# Starts as root to open its sockets, then becomes appliance.user.
ENTRYPOINT ["bootlab"]
CMD ["serve"]
