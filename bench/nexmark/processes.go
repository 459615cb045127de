package nexmark

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cairnstream/cairn/internal/group"
	"github.com/cairnstream/cairn/internal/proc"
)

// processes are the TaskManagers of a run, each a process of its own. One that ends is replaced, so that a run goes on
// when they are killed.
type processes struct {
	o          Options
	dir        string
	jobManager string
	mu         struct {
		sync.Mutex
		live    []*proc.Process
		started int
		spent   time.Duration // CPU time of those that have ended, as far as it is known.
		seen    map[int]time.Duration
	}
	closing chan struct{}
	g       *group.Group
}

const stopTimeout = 20 * time.Second

// startProcesses starts the TaskManagers of a JobManager. Their logs are in dir.
func startProcesses(ctx context.Context, o Options, jobManager, dir string) (*processes, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	p := &processes{o: o, dir: dir, jobManager: jobManager, closing: make(chan struct{}), g: group.New(ctx)}
	p.mu.seen = map[int]time.Duration{}
	for range o.TaskManagers {
		c, err := p.start()
		if err != nil {
			return nil, errors.Join(err, p.stop())
		}
		p.g.Go("watch "+c.Name, func(context.Context) error { return p.watch(c) })
	}
	return p, nil
}

func (p *processes) start() (*proc.Process, error) {
	p.mu.Lock()
	p.mu.started++
	name := fmt.Sprintf("taskmanager-%d", p.mu.started)
	p.mu.Unlock()
	slots := (p.o.Parallelism + p.o.TaskManagers - 1) / p.o.TaskManagers
	c, err := proc.Start(proc.Config{Name: name, Binary: p.o.Binary, Dir: p.dir, Args: []string{
		"taskmanager", "--jobmanager", p.jobManager, "--slots", strconv.Itoa(slots), "--listen", "127.0.0.1:0", "--http", "off",
		"--dir", filepath.Join(p.dir, name),
	}})
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.mu.live = append(p.mu.live, c)
	p.mu.Unlock()
	p.o.say("%s: pid %d", name, c.PID())
	return c, nil
}

// watch replaces a TaskManager whenever it ends, until the run is over.
func (p *processes) watch(c *proc.Process) error {
	for {
		select {
		case <-p.closing:
			return nil
		case <-c.Done():
		}
		p.mu.Lock()
		for i, l := range p.mu.live {
			if l == c {
				p.mu.live = append(p.mu.live[:i], p.mu.live[i+1:]...)
				break
			}
		}
		p.mu.spent += p.mu.seen[c.PID()]
		p.mu.Unlock()
		select {
		case <-p.closing:
			return nil
		default:
		}
		p.o.say("%s has ended: %v; another one takes its place", c.Name, c.Err())
		next, err := p.start()
		if err != nil {
			return err
		}
		c = next
	}
}

// cpu is the CPU time of all of them so far.
func (p *processes) cpu() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := p.mu.spent
	for _, c := range p.mu.live {
		if d, err := cpuOf(c.PID()); err == nil {
			p.mu.seen[c.PID()] = d
		}
		sum += p.mu.seen[c.PID()]
	}
	return sum
}

// peak is the sum of the most memory that each of them had in RAM.
func (p *processes) peak() (sum int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.mu.live {
		n, err := peakMemoryOf(strconv.Itoa(c.PID()))
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

func (p *processes) stop() error {
	close(p.closing)
	err := p.g.Wait()
	for _, c := range p.mu.live { // Nobody else is left to change it.
		if serr := c.Stop(stopTimeout); err == nil && serr != nil {
			err = fmt.Errorf("%s: %w; its log is in %s", c.Name, serr, p.dir)
		}
	}
	return err
}

// clockTicks is the unit of CPU time in /proc, a hundredth of a second on every Linux.
const clockTicks = 10 * time.Millisecond

// cpuOf is the CPU time of another process.
func cpuOf(pid int) (time.Duration, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold anything; behind it user and system time are the 12th and 13th field.
	f := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(f) < 13 {
		return 0, fmt.Errorf("%s: %d fields behind the name", path, len(f))
	}
	user, err := strconv.ParseInt(f[11], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	system, err := strconv.ParseInt(f[12], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return time.Duration(user+system) * clockTicks, nil
}
