package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/scheduler"
)

// Worker is the way to a TaskManager. Any goroutine may call it; nothing blocks.
type Worker interface {
	// Send queues a command. Commands arrive in order, or not at all once the session has ended.
	Send(c job.Command)
	// Close ends the session. It may be called more than once.
	Close(reason error)
}

// worker is a TaskManager during one session. Coordinator.mu guards it.
type worker struct {
	info      job.WorkerInfo
	conn      Worker
	session   uint64
	connected time.Time
	heard     time.Time
	missed    int
}

// Session is the coordinator's end of a worker's session. Its methods do not block, and do nothing
// once the session is over.
type Session struct {
	c      *Coordinator
	worker job.WorkerID
	id     uint64
	conn   Worker
}

// Connect begins the session of a worker: commands go to w from now on. A former session of the same
// worker is lost. The worker is told to end what it may run of any job, because nothing that an
// earlier session started is known here.
func (c *Coordinator) Connect(info job.WorkerInfo, w Worker) (*Session, error) {
	c.lose(info.ID, 0, errors.New("it has connected anew"))
	c.mu.Lock()
	if c.mu.stopped {
		c.mu.Unlock()
		return nil, errStopped()
	}
	c.mu.sessions++
	s := &Session{c: c, worker: info.ID, id: c.mu.sessions, conn: w}
	now := time.Now()
	c.mu.workers[info.ID] = &worker{info: info, conn: w, session: s.id, connected: now, heard: now}
	var stale []job.Run
	for id, e := range c.mu.jobs {
		if v, _ := e.look(); v.live > 0 {
			stale = append(stale, job.Run{Job: id, Attempt: v.live})
		}
	}
	c.mu.Unlock()
	c.log.Info("TaskManager connected", zap.String("worker", string(info.ID)), zap.String("host", info.Host),
		zap.Int("pid", info.PID), zap.Int("slots", info.Slots), zap.String("data", info.Data))
	slices.SortFunc(stale, func(a, b job.Run) int { return cmp.Compare(a.Job, b.Job) })
	for _, run := range stale {
		w.Send(job.Cancel{Run: run})
	}
	c.slotsChanged()
	return s, nil
}

// Epoch is the leader's term.
func (s *Session) Epoch() job.Epoch { return s.c.Epoch() }

// Heartbeat says that the worker lives.
func (s *Session) Heartbeat() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.current()
}

// current finds the worker if the session is not over, and notes that it lives.
func (s *Session) current() *worker {
	w := s.c.mu.workers[s.worker]
	if w == nil || w.session != s.id {
		return nil
	}
	w.heard, w.missed = time.Now(), 0
	return w
}

// Report takes what the worker says, in order.
func (s *Session) Report(r job.Report) {
	run, ok := runOf(r)
	if !ok {
		return
	}
	s.c.mu.Lock()
	w, e := s.current(), s.c.mu.jobs[run.Job]
	s.c.mu.Unlock()
	switch {
	case w == nil:
	case e == nil || e.mail == nil:
		s.endStale(r, run)
	default:
		e.mail.put(reported{s.worker, r})
	}
}

// endStale tells a worker to end what it should not run.
func (s *Session) endStale(r job.Report, run job.Run) {
	if alive(r) {
		s.conn.Send(job.Cancel{Run: run})
	}
}

// Disconnect says that the session is over: the worker is lost at once.
func (s *Session) Disconnect(reason error) { s.c.lose(s.worker, s.id, reason) }

func runOf(r job.Report) (job.Run, bool) {
	switch r := r.(type) {
	case job.TaskChanged:
		return r.Run, true
	case job.Ack:
		return r.Run, true
	case job.Decline:
		return r.Run, true
	case job.Mail:
		return r.Run, true
	case job.Counters:
		return r.Run, true
	}
	return job.Run{}, false
}

// alive tells whether a report shows that a task is there.
func alive(r job.Report) bool {
	t, ok := r.(job.TaskChanged)
	return !ok || !t.State.Terminal()
}

// lose ends a session; session 0 is whatever there is.
func (c *Coordinator) lose(id job.WorkerID, session uint64, reason error) {
	c.mu.Lock()
	w := c.mu.workers[id]
	if w == nil || session != 0 && w.session != session {
		c.mu.Unlock()
		return
	}
	delete(c.mu.workers, id)
	type told struct {
		e    *entry
		mail workerLost
	}
	var tell []told
	for _, e := range c.mu.jobs {
		if e.mail == nil {
			continue
		}
		tell = append(tell, told{e, workerLost{id, w.session, reason.Error(), c.enough(e)}})
	}
	c.mu.Unlock()
	c.log.Warn("TaskManager lost", zap.String("worker", string(id)), zap.Error(reason))
	w.conn.Close(reason)
	for _, t := range tell {
		t.e.mail.put(t.mail)
	}
}

// countHeartbeats loses sessions that are silent.
func (c *Coordinator) countHeartbeats(ctx context.Context) error {
	tick := time.NewTicker(c.opt.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		type gone struct {
			id      job.WorkerID
			session uint64
		}
		var silent []gone
		c.mu.Lock()
		for id, w := range c.mu.workers {
			if w.missed++; w.missed > c.opt.MaxMissed {
				silent = append(silent, gone{id, w.session})
			}
		}
		c.mu.Unlock()
		for _, g := range silent {
			c.lose(g.id, g.session, fmt.Errorf("%d heartbeats missed, one is due every %v", c.opt.MaxMissed, c.opt.Heartbeat))
		}
	}
}

// send queues a command for a worker, if it is there.
func (c *Coordinator) send(id job.WorkerID, cmd job.Command) {
	c.mu.Lock()
	w := c.mu.workers[id]
	c.mu.Unlock()
	if w != nil {
		w.conn.Send(cmd)
	}
}

// place asks the scheduler and holds the slots of its plan. It also says of which sessions they are.
func (c *Coordinator) place(e *entry, r scheduler.Request) (scheduler.Plan, map[job.WorkerID]uint64, *scheduler.Shortfall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	plan, short := scheduler.Place(c.slots(nil), r)
	sessions := map[job.WorkerID]uint64{}
	if short == nil {
		for id := range plan.Slots {
			sessions[id] = c.mu.workers[id].session
		}
		e.mu.Lock()
		e.mu.holds = plan.Slots
		e.mu.Unlock()
	}
	return plan, sessions, short
}

// enough tells whether a job could be placed on the workers that are there, its own slots included.
func (c *Coordinator) enough(e *entry) bool {
	v, _ := e.look()
	if v.plan == nil {
		return false
	}
	_, short := scheduler.Place(c.slots(e), requestOf(v.detail.Spec, e.id, v.plan))
	return short == nil
}

func requestOf(s job.Spec, id job.ID, p *job.Plan) scheduler.Request {
	return scheduler.Request{Job: id, Program: s.Program, Version: s.Version, Plan: p}
}

// slots is the scheduler's view; the slots that one job holds may be left out. c.mu is held.
func (c *Coordinator) slots(without *entry) scheduler.View {
	held := map[job.WorkerID]int{}
	for _, e := range c.mu.jobs {
		if e == without {
			continue
		}
		e.mu.Lock()
		for id, n := range e.mu.holds {
			held[id] += n
		}
		e.mu.Unlock()
	}
	var v scheduler.View
	for id, w := range c.mu.workers {
		v.Workers = append(v.Workers, scheduler.Worker{
			ID: id, Data: w.info.Data, Slots: w.info.Slots, Free: max(0, w.info.Slots-held[id]), Programs: w.info.Programs,
		})
	}
	slices.SortFunc(v.Workers, func(a, b scheduler.Worker) int { return cmp.Compare(a.ID, b.ID) })
	return v
}

// free gives a job's slots back.
func (c *Coordinator) free(e *entry) {
	e.mu.Lock()
	e.mu.holds = nil
	e.mu.Unlock()
	c.slotsChanged()
}

// slotsChanged tells every job that a placement may succeed now.
func (c *Coordinator) slotsChanged() {
	c.mu.Lock()
	var tell []*entry
	for _, e := range c.mu.jobs {
		if e.mail != nil {
			tell = append(tell, e)
		}
	}
	c.mu.Unlock()
	slices.SortFunc(tell, func(a, b *entry) int { return cmp.Compare(a.id, b.id) })
	for _, e := range tell {
		e.mail.put(slotsChanged{})
	}
}
