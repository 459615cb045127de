#!/usr/bin/env bash
# Builds the tools of the named modules under tools/ and links them into one folder.
#
#   scripts/tools.sh MODULE...        modules: buf etcd lint protogen test versitygw
#
# Binaries are built once per machine: they live in a cache keyed by the module's go.mod and go.sum, the Go
# version and the platform, and the folder holds links into it.
#
#   CAIRN_TOOLS_BIN    folder of the links (default: .tools/bin in the checkout)
#   CAIRN_TOOLS_CACHE  the cache (default: cairn-tools in XDG_CACHE_HOME, else in ~/.cache)
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
bin=${CAIRN_TOOLS_BIN:-$root/.tools/bin}
cache=${CAIRN_TOOLS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/cairn-tools}
goversion=$(go env GOVERSION GOOS GOARCH | tr '\n' ' ')

# packages prints "binary package" for each tool of a module.
packages() {
	case $1 in
	buf) echo "buf github.com/bufbuild/buf/cmd/buf" ;;
	etcd) echo "etcd go.etcd.io/etcd/server/v3" ;;
	lint) echo "golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint" ;;
	protogen)
		echo "protoc-gen-go google.golang.org/protobuf/cmd/protoc-gen-go"
		echo "protoc-gen-go-grpc google.golang.org/grpc/cmd/protoc-gen-go-grpc"
		;;
	test)
		echo "gotestsum gotest.tools/gotestsum"
		echo "benchstat golang.org/x/perf/cmd/benchstat"
		;;
	versitygw) echo "versitygw github.com/versity/versitygw/cmd/versitygw" ;;
	*)
		echo "tools: no module $1; there are buf, etcd, lint, protogen, test, versitygw" >&2
		return 2
		;;
	esac
}

# digest prints a hash of what decides a tool's binary.
digest() {
	{
		printf '%s\n' "$goversion"
		cat "$root/tools/$1/go.mod" "$root/tools/$1/go.sum"
		packages "$1"
	} | git hash-object --stdin | cut -c 1-16
}

# build fills the cache folder $2 with the tools of module $1; a folder is there whole or not at all.
build() {
	local started=$SECONDS fresh name pkg
	fresh=$(mktemp -d "$cache/.build.XXXXXX")
	echo "tools: building $(packages "$1" | cut -d ' ' -f 1 | tr '\n' ' ')(once per machine)" >&2
	while read -r name pkg; do
		(cd "$root/tools/$1" && CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false' go build -o "$fresh/$name" "$pkg" </dev/null)
	done < <(packages "$1")
	if [ -d "$2" ] || ! mv "$fresh" "$2"; then # another checkout was faster
		rm -rf "$fresh"
	fi
	echo "tools: built in $((SECONDS - started))s" >&2
}

mkdir -p "$bin" "$cache"
for module in "$@"; do
	names=$(packages "$module" | cut -d ' ' -f 1)
	built=$cache/$module-$(digest "$module")
	if [ ! -d "$built" ]; then
		if command -v flock >/dev/null; then # two checkouts need not build the same thing at once
			exec 9>"$cache/.$module.lock"
			flock 9
		fi
		[ -d "$built" ] || build "$module" "$built"
		exec 9>&-
	fi
	for name in $names; do
		[ "$(readlink "$bin/$name" || true)" = "$built/$name" ] || ln -sfn "$built/$name" "$bin/$name"
	done
done
