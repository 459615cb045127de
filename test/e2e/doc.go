// Package e2e runs whole clusters of real processes, with a real etcd and a real S3 gateway, and
// kills them. It is built with the tag e2e only: see `make e2e`.
package e2e
