#!/bin/sh
# Puts the network boot programs into internal/firmware/assets and verifies them. Run by "make assets".
# They stand as data files in a Go module, which the go command fetches and checks against the checksum database; nothing of
# that module is compiled.
set -eu
cd "$(dirname "$0")"
if (cd assets && sha256sum --quiet --check ../SHA256SUMS) >/dev/null 2>&1; then
	exit 0
fi
dir=$(cd /tmp && go mod download -json github.com/tinkerbell/tinkerbell@v0.25.0 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
from=$dir/smee/internal/ipxe/binary/file
put() { install -m 0644 "$from/$1" "assets/$2"; }
put undionly.kpxe undionly.kpxe
put ipxe.efi ipxe.efi
put snp-x86_64.efi snponly.efi
put snp-arm64.efi snponly-arm64.efi
put script/ipxe.commit ipxe.commit
cd assets && sha256sum --quiet --check ../SHA256SUMS
