// Package servers starts real servers as processes, for tests against what runs in production: an etcd cluster and
// an S3 gateway. Tests use [Etcd] and [S3], which skip where the binaries are missing (and fail instead where
// CAIRN_REQUIRE_SERVERS=1); programs use [StartEtcd] and [StartS3].
//
// The binaries etcd and versitygw are looked for in $CAIRN_TOOLS_BIN, by default .tools/bin below the root of the
// module; `make tools` builds them. Each server can be stopped, killed, paused and restarted on its old ports. A
// server dies with the process that started it, however that ends.
//
// Goroutines: one per running process, on an operating system thread of its own; it starts the process and waits
// for it.
package servers
