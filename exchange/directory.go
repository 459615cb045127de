package exchange

import (
	"fmt"
	"sync"

	"github.com/cairnstream/cairn/job"
)

// Directory is where transports find the ports of a process. It is safe for concurrent use.
type Directory struct {
	mu struct {
		sync.Mutex
		runs   map[job.Run]map[job.Channel]*Port
		newest map[job.ID]job.Attempt
	}
}

// NewDirectory makes an empty directory.
func NewDirectory() *Directory {
	d := &Directory{}
	d.mu.runs = map[job.Run]map[job.Channel]*Port{}
	d.mu.newest = map[job.ID]job.Attempt{}
	return d
}

// Register makes p known under run and ch until Remove of the run.
func (d *Directory) Register(run job.Run, ch job.Channel, p *Port) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.mu.runs[run]
	if m == nil {
		m = map[job.Channel]*Port{}
		d.mu.runs[run] = m
	}
	m[ch] = p
	d.mu.newest[run.Job] = max(d.mu.newest[run.Job], run.Attempt)
}

// Lookup finds the port of a channel. The error tells a stale attempt from an unknown channel.
func (d *Directory) Lookup(run job.Run, ch job.Channel) (*Port, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.mu.runs[run][ch]; p != nil {
		return p, nil
	}
	if newest := d.mu.newest[run.Job]; newest > run.Attempt {
		return nil, fmt.Errorf("channel %v of job %s: attempt %d is stale, attempt %d runs here", ch, run.Job, run.Attempt, newest)
	}
	return nil, fmt.Errorf("channel %v of job %s attempt %d is not known here", ch, run.Job, run.Attempt)
}

// Remove forgets all ports of a run.
func (d *Directory) Remove(run job.Run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.runs, run)
}

// Forget drops what is remembered of a job that is over.
func (d *Directory) Forget(id job.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.newest, id)
}
