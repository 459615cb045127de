// Package proc starts Cairn's own processes as children: for the demo, the end-to-end tests and the
// benchmarks, which need real processes that can be killed.
package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a child that was started with a ports file. Its methods may be called from any
// goroutine.
type Process struct {
	Name string
	// Ports are the addresses that it chose, by the names in its ports file.
	Ports map[string]string

	cmd  *exec.Cmd
	log  *os.File
	done chan struct{} // Closed when the process has ended.
	mu   struct {
		sync.Mutex
		err error
	}
}

// Config describes a child.
type Config struct {
	Name   string
	Binary string
	Args   []string
	Env    []string // Beside those of this process.
	Dir    string   // Takes NAME.log, which is appended to, and the ports file.
	// Ready bounds the start; zero means 30 s, for a machine under load.
	Ready time.Duration
}

// Start starts a child and waits until it has written its ports file.
func Start(c Config) (*Process, error) {
	if c.Ready == 0 {
		c.Ready = 30 * time.Second
	}
	ports := filepath.Join(c.Dir, c.Name+".ports")
	if err := os.Remove(ports); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	log, err := os.OpenFile(filepath.Join(c.Dir, c.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	p := &Process{Name: c.Name, log: log, done: make(chan struct{})}
	p.cmd = exec.Command(c.Binary, append(c.Args, "--ports-file", ports)...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// What configures this process, or its tests, is not meant for the child.
	p.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CAIRN_") }), c.Env...)
	// A child in a process group of its own is not hit by an interrupt from the terminal: its parent
	// ends it, in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := startOnce(p.cmd); err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	go func() {
		err := p.cmd.Wait()
		p.mu.Lock()
		p.mu.err = err
		p.mu.Unlock()
		_ = log.Close()
		close(p.done)
	}()
	deadline := time.Now().Add(c.Ready)
	for {
		if data, err := os.ReadFile(ports); err == nil {
			if err := json.Unmarshal(data, &p.Ports); err != nil {
				p.Kill()
				return nil, fmt.Errorf("start %s: ports file: %w", c.Name, err)
			}
			return p, nil
		}
		select {
		case <-p.done:
			return nil, fmt.Errorf("start %s: it ended at once: %w; see %s", c.Name, p.exit(), log.Name())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.Kill()
			return nil, fmt.Errorf("start %s: not ready within %v; see %s", c.Name, c.Ready, log.Name())
		}
	}
}

// spawner is the goroutine that starts children: Pdeathsig counts the end of the starting thread as
// the parent's, so that thread must live as long as the process.
var spawner = sync.OnceValue(func() chan func() {
	c := make(chan func())
	go func() {
		lockThread()
		for f := range c {
			f()
		}
	}()
	return c
})

func startOnce(cmd *exec.Cmd) error {
	res := make(chan error)
	spawner() <- func() { res <- cmd.Start() }
	return <-res
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the process ended.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.err
}

// exit is Err for a process that should not have ended at all.
func (p *Process) exit() error {
	if err := p.Err(); err != nil {
		return err
	}
	return errors.New("exit status 0")
}

// Kill ends the process as kill -9 does and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // It may have ended by itself.
	<-p.done
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Stop asks the process to end and kills it if it does not within timeout.
func (p *Process) Stop(timeout time.Duration) error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // It may have ended by itself.
	select {
	case <-p.done:
		return p.Err()
	case <-time.After(timeout):
		p.Kill()
		return fmt.Errorf("%s did not end within %v and was killed", p.Name, timeout)
	}
}
