#!/bin/sh
# Builds bin/bootlab twice from the last commit and compares the two: in folders of different names, the second time with an empty build
# cache, in another time zone, for another home and with another umask. Some minutes, nearly all for the second.
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT

# build FOLDER [NAME=VALUE…]
build() {
	folder=$dir/$1
	shift
	git clone -q . "$folder"
	cp -a internal/firmware/assets/. "$folder/internal/firmware/assets/"
	env "$@" make -s -C "$folder" build
}

modules=$(go env GOMODCACHE)
build first
umask 077
build another/folder GOCACHE="$dir/cache" GOMODCACHE="$modules" HOME="$dir" TZ=Asia/Kathmandu LC_ALL=C.UTF-8
cmp "$dir/first/bin/bootlab" "$dir/another/folder/bin/bootlab" || { echo "two builds of one commit differ" >&2; exit 1; }
echo "two builds of $(git rev-parse --short HEAD) have the same $(wc -c <"$dir/first/bin/bootlab") bytes, sha256 $(sha256sum <"$dir/first/bin/bootlab" | cut -c1-64)"
