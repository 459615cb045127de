package s3

import (
	"context"
	"net"
	"net/http"
	"time"
)

// transport is the HTTP transport of a store. Nothing in it waits for ever: not for a connection, not for an answer,
// and not for the next byte in either direction.
type transport struct{ http *http.Transport }

func newTransport(stall time.Duration) *transport {
	dialer := &net.Dialer{Timeout: min(5*time.Second, stall), KeepAlive: 15 * time.Second}
	return &transport{http: &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &stallConn{Conn: c, stall: stall}, nil
		},
		MaxIdleConnsPerHost: 32, // uploads in parallel come back for them
		IdleConnTimeout:     stall,
		TLSHandshakeTimeout: 10 * time.Second,
		// Completing a large multipart upload takes a server its time.
		ResponseHeaderTimeout: max(stall, time.Minute),
		DisableCompression:    true, // objects come as they are
	}}
}

// stallConn gives a connection up when nothing moves for a while. A write moves the deadline of reads too: the
// transport waits for an answer all the time that a body is on its way.
type stallConn struct {
	net.Conn
	stall time.Duration
}

func (c *stallConn) Read(p []byte) (int, error) {
	// Longer than an answer may take: that has a limit of its own.
	if err := c.SetReadDeadline(time.Now().Add(2 * max(c.stall, time.Minute))); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	return n, err
}

func (c *stallConn) Write(p []byte) (int, error) {
	now := time.Now()
	if err := c.SetWriteDeadline(now.Add(c.stall)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	if err == nil {
		err = c.SetReadDeadline(time.Now().Add(2 * max(c.stall, time.Minute)))
	}
	return n, err
}
