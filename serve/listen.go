package serve

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"
)

// listen opens a TCP port. Port 0 takes a free one.
func listen(what, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s for %s: %w", addr, what, err)
	}
	return l, nil
}

// reachable is the address under which others reach a listener: advertise if it is given (port 0 or none stands for the
// listener's), else the listener's own with the host's name in place of "all interfaces".
func reachable(l net.Listener, advertise string) string {
	host, port, _ := net.SplitHostPort(l.Addr().String())
	if advertise != "" {
		h, p, err := net.SplitHostPort(advertise)
		switch {
		case err != nil:
			return net.JoinHostPort(strings.Trim(advertise, "[]"), port)
		case p == "0" || p == "":
			return net.JoinHostPort(h, port)
		}
		return advertise
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = hostname()
	}
	return net.JoinHostPort(host, port)
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}

// loopback tells whether only this machine reaches the address.
func loopback(addr net.Addr) bool {
	t, ok := addr.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

// warnOpen says that a port is open to others.
func warnOpen(log *zap.Logger, what string, l net.Listener) {
	if l != nil && !loopback(l.Addr()) {
		log.Warn("others reach this address, without TLS and without tokens: whoever does can use it",
			zap.String("what", what), zap.String("address", l.Addr().String()))
	}
}

// checkAddress says what is wrong with host:port.
func checkAddress(key, addr string, problems *[]string) {
	if _, port, err := net.SplitHostPort(addr); err != nil {
		*problems = append(*problems, fmt.Sprintf("%s: %q is not host:port", key, addr))
	} else if _, err := net.LookupPort("tcp", port); err != nil {
		*problems = append(*problems, fmt.Sprintf("%s: %q has no valid port: want 0 to 65535", key, addr))
	}
}

// writePorts writes addresses by flag name as one JSON object. The file appears whole.
func writePorts(file string, addrs map[string]any) error {
	if file == "" {
		return nil
	}
	data, err := json.Marshal(addrs)
	if err != nil {
		return fmt.Errorf("write the ports file: %w", err)
	}
	t, err := os.CreateTemp(filepath.Dir(file), ".ports-*")
	if err != nil {
		return fmt.Errorf("write the ports file: %w", err)
	}
	_, err = t.Write(append(data, '\n'))
	if cerr := t.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(t.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(t.Name(), file)
	}
	if err != nil {
		_ = os.Remove(t.Name())
		return fmt.Errorf("write the ports file: %w", err)
	}
	return nil
}
