package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	// readyTimeout bounds a start: servers need less than a second, a loaded machine much longer.
	readyTimeout = 30 * time.Second
	stopTimeout  = 10 * time.Second
	pollEvery    = 20 * time.Millisecond
)

// Process is a server that can be ended and started again with the same arguments. Its methods may be called from
// any goroutine.
type Process struct {
	name, binary string
	args, env    []string
	logPath      string
	ready        func(ctx context.Context) error

	mu struct {
		sync.Mutex
		proc *os.Process
		done chan struct{} // closed when the process has ended
	}
}

// Start runs the process and waits until it answers. Starting one that runs is an error.
func (p *Process) Start(ctx context.Context) error {
	done, err := p.spawn()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := p.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-done:
			return fmt.Errorf("start %s: it ended at once: %s", p.name, p.tail())
		case <-ctx.Done():
			p.Kill()
			return fmt.Errorf("start %s: not ready: %w; its log ends: %s", p.name, err, p.tail())
		case <-time.After(pollEvery):
		}
	}
}

func (p *Process) spawn() (<-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.proc != nil {
		select {
		case <-p.mu.done:
		default:
			return nil, errors.New("it runs already")
		}
	}
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(p.binary, p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started, done := make(chan error), make(chan struct{})
	go func() {
		// The kernel sends the death signal when the thread that started the process ends, so this one stays.
		runtime.LockOSThread()
		defer close(done)
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.mu.proc, p.mu.done = cmd.Process, done
	return done, nil
}

// PID is the process's id, 0 if it was never started.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.proc == nil {
		return 0
	}
	return p.mu.proc.Pid
}

// Kill ends the process at once, as a crash does, and waits for its end. Killing what does not run does nothing.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

// Stop asks the process to end, kills it if it does not, and waits for its end.
func (p *Process) Stop() { p.end(syscall.SIGTERM) }

func (p *Process) end(signal syscall.Signal) {
	p.mu.Lock()
	proc, done := p.mu.proc, p.mu.done
	p.mu.Unlock()
	if proc == nil {
		return
	}
	proc.Signal(signal)
	if signal != syscall.SIGKILL {
		select {
		case <-done:
		case <-time.After(stopTimeout):
			proc.Signal(syscall.SIGKILL)
		}
	}
	<-done
}

// Pause holds the process where it is, as a long garbage collection or a stalled machine would.
func (p *Process) Pause() error { return p.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

func (p *Process) signal(signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.proc == nil {
		return fmt.Errorf("signal %s: it was never started", p.name)
	}
	return p.mu.proc.Signal(signal)
}

// Restart starts the process on its old ports and data; one that still runs is killed first.
func (p *Process) Restart(ctx context.Context) error {
	p.Kill()
	return p.Start(ctx)
}

// tail is the end of the process's log.
func (p *Process) tail() string {
	data, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}

// freePorts finds ports of the loopback interface that nobody uses at this moment.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all stay taken until all are found, so that they differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
