#!/usr/bin/env bash
# Generates into a folder of its own and compares; the checkout is not touched.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=${CAIRN_TOOLS_BIN:-$PWD/.tools/bin}:$PATH

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
buf generate --output "$fresh"

stale=0
while read -r file; do
	if ! diff -u "$file" "$fresh/$file" >/dev/null 2>&1; then
		echo "check-generate: $file differs from what its proto gives" >&2
		diff -u "$file" "$fresh/$file" 2>&1 | head -40 >&2 || true
		stale=1
	fi
done < <({
	find proto -name '*.pb.go'
	cd "$fresh" && find proto -name '*.pb.go'
} | sort -u)
if [ "$stale" != 0 ]; then
	echo "check-generate: run make generate and commit the result" >&2
	exit 1
fi
echo "check-generate: the generated Go is up to date"
