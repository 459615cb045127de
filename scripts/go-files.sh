#!/usr/bin/env bash
# Prints the Go files of the checkout, tracked or about to be, without generated ones.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files --cached --others --exclude-standard -- '*.go' ':!:*.pb.go' | while read -r file; do
	if [ -f "$file" ]; then echo "$file"; fi # deleted but not yet committed
done
