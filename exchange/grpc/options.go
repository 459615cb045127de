package grpc

import (
	"fmt"
	"time"

	"google.golang.org/grpc/credentials"

	ggrpc "google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/cairnstream/cairn/job"
)

// Options are the settings of a Server or a Dialer. The zero value means the defaults.
type Options struct {
	// Self names this process in the errors that its peers report.
	Self job.WorkerID
	// Window is how many bytes of frames a sender may have under way to one channel of this
	// process, from its queue to the gate; the last frame may exceed it. The default, 128 KiB, is
	// four full batches: as many as a channel within a process holds, and enough for 100 MB/s
	// a channel over a network of 1 ms.
	Window int
	// MaxFrame is the largest frame in bytes that is sent or accepted; the default is 16 MiB. It
	// must be the same in all processes.
	MaxFrame int
	// DialTimeout bounds how long Dial takes; the default is 5 s. A process that does not answer
	// for that long would be taken for lost anyway.
	DialTimeout time.Duration
	// Beat is the time between the signs of life that a receiver sends, 1 s by default. A sender
	// that misses MaxMissed of them, 4 by default, takes the connection for lost: 5 s at most.
	Beat      time.Duration
	MaxMissed int
	// Credentials secure the connections of a Dialer; nil means none.
	Credentials credentials.TransportCredentials
	// Metrics counts what is sent and received; nil counts nothing.
	Metrics *Metrics
}

// WithDefaults fills in what is zero.
func (o Options) WithDefaults() Options {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&o.Window, 128<<10)
	def(&o.MaxFrame, 16<<20)
	def(&o.MaxMissed, 4)
	if o.DialTimeout == 0 {
		o.DialTimeout = 5 * time.Second
	}
	if o.Beat == 0 {
		o.Beat = time.Second
	}
	if o.Self == "" {
		o.Self = "unnamed"
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	return o
}

// Validate lists everything that is wrong with o after WithDefaults.
func (o Options) Validate() error {
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if o.Window < 4<<10 {
		bad("window of %d bytes: want at least 4096", o.Window)
	}
	if o.MaxFrame < 64<<10 || o.MaxFrame > 1<<30 {
		bad("max-frame of %d bytes: want 65536 to %d", o.MaxFrame, 1<<30)
	}
	if o.MaxMissed < 1 {
		bad("max-missed of %d: want at least 1", o.MaxMissed)
	}
	if o.DialTimeout < 0 || o.Beat < 0 {
		bad("dial-timeout %v and beat %v: want positive durations", o.DialTimeout, o.Beat)
	}
	if len(problems) > 0 {
		return &job.Problems{What: "exchange", List: problems}
	}
	return nil
}

// HTTP/2 flow control is no more than a bound for what the receiving goroutine has not come to yet,
// since it never waits: windows large enough not to matter on a fast network.
const (
	streamWindow = 4 << 20
	connWindow   = 16 << 20
	socketBuffer = 128 << 10 // Fewer system calls than with gRPC's 32 KiB; one such pair per connection.
)

// ServerOptions are what the gRPC server needs that a Server is registered on: pings that notice a
// lost sender within 5 s, and windows.
func ServerOptions() []ggrpc.ServerOption {
	return []ggrpc.ServerOption{
		ggrpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Second, Timeout: 3 * time.Second}),
		ggrpc.InitialWindowSize(streamWindow),
		ggrpc.InitialConnWindowSize(connWindow),
		ggrpc.ReadBufferSize(socketBuffer),
		ggrpc.WriteBufferSize(socketBuffer),
	}
}
