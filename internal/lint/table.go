package lint

// module is the prefix of all our packages.
const module = "github.com/cairnstream/cairn"

// A row places packages in a layer. A package imports only packages of lower levels. At its own level it may
// import a package that it is nested in (blob/blobtest imports blob) and those that the row lists.
type row struct {
	level int
	path  string   // below the module; "" is the root; "x/..." is everything below x, not x itself
	also  []string // packages of the same level that it may import as well
}

// layers is the architecture's table of packages. The most specific row that matches counts.
var layers = []row{
	{9, "cmd/...", []string{"examples/flights/flightsjob", "bench/nexmark"}}, // the job of the demo; the benchmark
	{9, "examples/...", nil},
	{9, "examples/flights", []string{"examples/flights/flightsjob"}},
	{9, "bench/...", []string{"bench/..."}},
	{9, "test/e2e/...", []string{"test/e2e/..."}}, // the tests' programs
	{9, "test/e2e", []string{"bench/nexmark", "test/e2e/..."}},
	{9, "test/chaos", nil},

	{8, "", nil}, // Main, Program, aliases of what a user's main needs

	{7, "cli", nil},
	{7, "cli/...", nil},

	{6, "serve", nil},
	{6, "pipeline", nil},
	{6, "streamtest", nil},
	{6, "test/sim", nil},

	{5, "rpc", nil},
	{5, "rpc/...", nil},
	{5, "web", nil},

	{4, "coordinator", nil},
	{4, "task", nil},
	{4, "test/snapshots", nil}, // of every state backend, whole and damaged

	{3, "statebackend/memory", nil},
	{3, "statebackend/fs", nil},
	{3, "statebackend/pebble", nil},
	{3, "blob/s3", nil},
	{3, "blob/local", nil},
	{3, "blob/mem", nil},
	{3, "metastore/etcd", nil},
	{3, "metastore/mem", nil},
	{3, "exchange/inproc", nil},
	{3, "exchange/grpc", nil},
	{3, "connector/file", nil},
	{3, "connector/datagen", nil},
	{3, "connector/kafka", nil},
	{3, "connector/postgres", nil},
	{3, "connector/nexmark", nil},
	{3, "connector/collect", nil}, // sinks into memory
	{3, "stream", nil},

	{2, "coordinator/checkpoint", nil},
	{2, "coordinator/lifecycle", nil},
	{2, "scheduler", nil},
	{2, "task/barrier", nil},
	{2, "snapshot", nil},
	{2, "statebackend/internal/tables", nil},         // what the backends on maps share
	{2, "statebackend/stored", []string{"snapshot"}}, // looks into checkpoints without the program
	{2, "operator", nil},
	{2, "operator/window", nil},
	{2, "operator/join", nil},
	{2, "operator/dedup", nil},
	{2, "operator/async", nil},

	{1, "statebackend", nil},
	{1, "statebackend/segment", nil}, // the format of a snapshot's objects
	{1, "statebackend/statetest", []string{"statebackend/segment"}},
	{1, "blob", nil},
	{1, "blob/blobtest", nil},
	{1, "blob/faulty", nil},
	{1, "blob/sealed", nil},
	{1, "metastore", nil},
	{1, "metastore/metatest", nil},
	{1, "exchange", nil},
	{1, "exchange/exchangetest", []string{"exchange/exchangetest/..."}},
	{1, "exchange/exchangetest/...", nil},
	{1, "test/servers", nil},

	{0, "job", nil},
	{0, "codec", nil},
	{0, "watermark", nil},
	{0, "record", []string{"codec", "job"}}, // a batch is encoded by its codec, a barrier carries a job's ids
	{0, "proto/cairn/v1", nil},
	{0, "internal/table", []string{"record"}}, // typed hash tables; which types have pointers
	{0, "connector/pace", nil},                // rates of sources

	// What even level 0 stands on: language helpers that know nothing of streams.
	{-1, "internal/invariant", nil},
	{-1, "internal/gcfloor", nil},
	{-1, "internal/group", nil},
	{-1, "internal/proc", nil},
	{-1, "internal/spelling", nil},
	{-1, "internal/lint", nil},
}

// pure packages decide and compute: no clock, no goroutine, no I/O, no lock, no randomness. The value lists
// what one of them may import all the same, with the reason.
var pure = map[string]map[string]string{
	"job":                    nil,
	"record":                 {"sync": "pools of batches"},
	"codec":                  {"sync": "the plan of a type is derived once"},
	"watermark":              nil,
	"coordinator/checkpoint": nil,
	"coordinator/lifecycle":  nil,
	"scheduler":              nil,
	"task/barrier":           nil,
}

// impure are the imports that pure packages do without; "x/..." is x and everything below.
var impure = []string{
	"context", "crypto/rand", "database/...", "io/ioutil", "log/...", "math/rand/...", "net/...", "os/...",
	"plugin", "runtime/...", "sync/...", "syscall/...", "testing/...",
}

// pureModules are the third-party modules that pure packages may import: computation only.
var pureModules = []string{"github.com/zeebo/xxh3", "github.com/klauspost/compress", "google.golang.org/protobuf"}

// clock are the functions of package time that pure packages do not call: they are told the time.
var clock = map[string]bool{
	"Now": true, "Since": true, "Until": true, "Sleep": true, "After": true, "AfterFunc": true, "Tick": true,
	"NewTimer": true, "NewTicker": true,
}

// A door is the only place from which something may be imported.
type door struct {
	what string   // import path; everything below it too
	from []string // packages, with what is below them; "x/..." is only what is below x
	why  string
}

// tests are the packages, besides _test.go files, that exist for tests and measurements.
var tests = []string{"streamtest", "test/...", "bench/..."}

// wiring is who may name an implementation; the rest of the tree sees contracts only.
var wiring = append([]string{"serve", "cmd/..."}, tests...)

// users is who may use what a user's program uses.
var users = append([]string{"", "pipeline", "examples/..."}, wiring...)

var doors = []door{
	{"github.com/cockroachdb/pebble", []string{"statebackend/pebble"}, "one state backend among three"},
	{"github.com/minio/minio-go", []string{"blob/s3"}, "one blob store among three"},
	{"go.etcd.io", []string{"metastore/etcd"}, "the metadata store is a contract"},
	{"google.golang.org/grpc", []string{"rpc", "web", "exchange/grpc", "proto/cairn/v1", "metastore/etcd"}, "the domain knows no transport (etcd's client fails with gRPC's status codes)"},
	{"github.com/grpc-ecosystem", []string{"rpc", "web", "proto/cairn/v1"}, "the domain knows no transport"},
	{"github.com/twmb/franz-go", []string{"connector/kafka"}, "connectors are optional"},
	{"github.com/jackc/pgx", []string{"connector/postgres"}, "connectors are optional"},
	{"github.com/spf13", []string{"", "cli", "cmd/..."}, "only the command line touches flags"},

	{module + "/proto/cairn/v1", []string{"rpc", "web", "exchange/grpc", "snapshot"}, "messages are translated at the edge"},

	{module + "/statebackend/memory", wiring, "implementations are chosen by the wiring"},
	{module + "/statebackend/fs", wiring, "implementations are chosen by the wiring"},
	{module + "/statebackend/pebble", wiring, "implementations are chosen by the wiring"},
	{module + "/blob/s3", wiring, "implementations are chosen by the wiring"},
	{module + "/blob/local", wiring, "implementations are chosen by the wiring"},
	{module + "/blob/mem", wiring, "implementations are chosen by the wiring"},
	{module + "/metastore/etcd", wiring, "implementations are chosen by the wiring"},
	{module + "/metastore/mem", wiring, "implementations are chosen by the wiring"},
	{module + "/exchange/inproc", wiring, "implementations are chosen by the wiring"},
	{module + "/exchange/grpc", wiring, "implementations are chosen by the wiring"},
	{module + "/connector", users, "connectors are chosen by programs"},
	{module + "/stream", users, "the typed API is for programs"},

	{module + "/statebackend/statetest", tests, "a conformance suite"},
	{module + "/blob/blobtest", tests, "a conformance suite"},
	{module + "/blob/faulty", tests, "faults are for tests"},
	{module + "/metastore/metatest", tests, "a conformance suite"},
	{module + "/exchange/exchangetest", tests, "a conformance suite"},
	{module + "/test", append([]string{"cmd/..."}, tests...), "servers and simulations are for tests"},
	{"testing", append([]string{
		"statebackend/statetest", "blob/blobtest", "blob/faulty", "metastore/metatest", "exchange/exchangetest",
	}, tests...), "production code does not link the test framework"},
	{module + "/internal/lint", nil, "nobody needs it"},
}

// forbidden are names for a package that say nothing of what it provides.
var forbidden = map[string]bool{
	"util": true, "utils": true, "common": true, "helper": true, "helpers": true, "base": true, "types": true,
	"models": true, "model": true, "manager": true, "misc": true, "shared": true,
}
