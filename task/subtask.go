package task

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/task/barrier"
	"github.com/cairnstream/cairn/watermark"
)

func newSubtask(r *run, t job.Task) *subtask {
	ctx, cancel := context.WithCancelCause(r.ctx)
	return &subtask{
		begun: time.Now(),
		run:   r, task: t, ctx: ctx, cancel: cancel, mail: newMailbox(),
		log: r.log.With(zap.String("operator", t.Vertex), zap.Int("subtask", t.Subtask)),
	}
}

// makeGate makes the input side. The plan is known.
func (s *subtask) makeGate() {
	p := s.run.plan
	v := p.Vertex(s.task.Vertex)
	s.vertex = p.Vertices[v]
	var frames []record.Frames
	for _, ch := range p.ChannelsIn(v, s.task.Subtask) {
		e := p.Edges[ch.Edge]
		in := s.run.bp.Nodes[e.ToOp].Inputs[e.Input]
		frames = append(frames, in.Frames)
		s.inputs = append(s.inputs, inputPort{input: e.Input, from: ch, empty: in.Empty})
	}
	s.gate, s.pace = exchange.NewGate(frames), newPace(len(frames))
	s.gate.SetRows(s.pace.rows)
	s.open = len(s.inputs)
	s.align = barrier.New(len(s.inputs))
}

// main is the goroutine of the subtask.
func (s *subtask) main() {
	err := guard(s.live)
	// The report goes out before the channels break, so that this failure, and not what its peers
	// make of it, is the first that the coordinator hears of.
	s.end(err)
	s.mail.close()
	s.cancel(errCancelled)
	s.uploads.wg.Wait()
	for _, r := range s.routers {
		r.Close()
	}
	for _, o := range s.outs {
		o.Close()
	}
	s.gate.Close()
	for _, l := range s.chain {
		if l.opened {
			if err := guard(l.op.Close); err != nil {
				s.log.Warn("close of an operator failed", zap.String("operator", l.name), zap.Error(err))
			}
		}
		if l.state != nil {
			if err := l.state.Close(); err != nil {
				s.log.Warn("close of state failed", zap.String("operator", l.name), zap.Error(err))
			}
		}
	}
	if errors.Is(err, errCancelled) {
		s.report(job.TaskCancelled) // Only now is its slot free.
	}
}

// end reports how the task ended, unless it was cancelled.
func (s *subtask) end(err error) {
	switch {
	case errors.Is(err, errFinished):
		s.run.sendCounters(true)
		s.report(job.TaskFinished)
	case errors.Is(err, errCancelled):
	case s.ctx.Err() != nil && errors.Is(context.Cause(s.ctx), errCancelled):
		// What failed because it was being cancelled is no failure.
		s.report(job.TaskCancelled)
	default:
		s.state.Store(job.TaskFailed)
		s.run.failed(s.task, err)
	}
}

// live deploys the task, waits for the others, and runs it.
func (s *subtask) live() error {
	if err := s.openChain(); err != nil {
		return err
	}
	s.report(job.TaskReady)
	select {
	case <-s.run.started:
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
	if err := s.connect(); err != nil {
		return err
	}
	s.report(job.TaskRunning)
	return s.loop()
}

func (s *subtask) report(st job.TaskState) {
	s.state.Store(st)
	s.run.manager.report(job.TaskChanged{Run: s.run.id, Task: s.task, State: st})
}

// openChain makes, opens and restores the operators.
func (s *subtask) openChain() error {
	p, g := s.run.plan, s.run.plan.Graph
	links := map[int]*link{}
	floor := record.MinTime
	// An enumerator says again that there are no more splits, and so reaches its end anew.
	s.ended = s.run.deploy.Restore != nil && !s.vertex.Enumerator
	for i, n := range s.vertex.Operators {
		op, err := s.run.bp.Nodes[n].New()
		if err != nil {
			return fmt.Errorf("make operator %q: %w", g.Operators[n].Name, err)
		}
		l := &link{op: op, name: g.Operators[n].Name}
		links[n] = l
		s.chain = append(s.chain, l)
		if i > 0 {
			in := g.Operators[n].Inputs[0]
			l.from = links[in.From].output(in.Output)
			l.from.next = append(l.from.next, push{l})
		}
		if err := s.prepare(l, g.Operators[n]); err != nil {
			return fmt.Errorf("restore operator %q: %w", l.name, ofRestore(err))
		}
		if i == 0 {
			floor = l.ctx.Watermark
		}
		s.ended = s.ended && l.ctx.Ended
	}
	s.merge = watermark.NewMerge(len(s.inputs), floor)
	head := s.chain[0].op
	s.yielder, _ = head.(operator.Yielder)
	s.poller, _ = head.(operator.Poller)
	s.sleeper, _ = head.(operator.Sleeper)
	s.clocked, _ = head.(operator.Clocked)
	if e, ok := head.(interface{ SetReaders(int) }); ok && len(s.vertex.Out) > 0 {
		e.SetReaders(p.Vertices[p.Edges[s.vertex.Out[0]].To].Parallelism)
	}
	for _, l := range s.chain {
		if err := s.open1(l); err != nil {
			return err
		}
	}
	return nil
}

func (s *subtask) open1(l *link) error {
	l.opened = true
	if err := l.op.Open(l.ctx); err != nil {
		return fmt.Errorf("open operator %q: %w", l.name, err)
	}
	if l.state != nil {
		if err := l.state.Restore(s.ctx, s.reader(), l.keyed); err != nil {
			return fmt.Errorf("restore operator %q: %w", l.name, ofRestore(err))
		}
	}
	if l.state != nil {
		if names := l.state.Unopened(); len(names) > 0 {
			return job.Errorf(job.ClassRefused, "operator %q: the checkpoint has states that the program no longer declares: %s: declare them again, leave them out with --drop-state %s/STATE, or start with --fresh", l.name, strings.Join(names, ", "), l.name)
		}
	}
	if r, ok := l.op.(operator.Restorable); ok {
		if err := r.Ready(); err != nil {
			return fmt.Errorf("restore operator %q: %w", l.name, err)
		}
	}
	return nil
}

// prepare makes the context of an operator, with its list state and an empty keyed state.
func (s *subtask) prepare(l *link, op job.Operator) error {
	r, m := s.run, s.run.manager
	par := s.vertex.Parallelism
	l.main.counters = &l.counters
	l.main.mark.Store(record.MinTime)
	l.ctx = &operator.Context{
		Context: s.ctx, Run: r.id, Task: s.task, Name: op.Name, Subtask: s.task.Subtask, Parallelism: par,
		K: r.plan.K, Groups: job.GroupsOf(s.task.Subtask, r.plan.K, par), Settings: r.settings,
		Watermark: record.MinTime, Out: &l.main, Log: s.log, Now: time.Now, Post: s.mail.post,
		Mail: func(to job.Task, body []byte) {
			m.report(job.Mail{Run: r.id, From: s.task, To: to, Body: body})
		},
		Overwrite: r.deploy.Spec.Overwrite, NoCheckpoints: r.settings.CheckpointMode == job.Off,
		Counters: &l.counters,
		Side:     func(name string) operator.Output { return l.output(name) },
	}
	if s.vertex.Reader {
		l.ctx.Enumerator = r.plan.Vertices[r.plan.Edges[s.vertex.In[0]].From].Name
	}
	if op.Keyed() {
		if err := s.makeState(l); err != nil {
			return err
		}
	}
	if r.deploy.Restore == nil {
		return nil
	}
	old, ok := r.deploy.Restore.Operators[op.Name]
	if !ok || len(old.Subtasks) == 0 {
		return nil
	}
	return s.restore(l, old)
}

// makeState makes an empty state backend.
func (s *subtask) makeState(l *link) error {
	r, m := s.run, s.run.manager
	f, err := m.cfg.Backend(r.settings.BackendOf(l.name))
	if err != nil {
		return err
	}
	compression, err := compressionOf(r.settings.StateCompression)
	if err != nil {
		return err
	}
	restored := job.CheckpointID(0)
	if r.deploy.Restore != nil {
		restored = r.deploy.Restore.Checkpoint
	}
	l.state, err = f.New(s.ctx, statebackend.Params{
		Job: r.id.Job, Task: s.task, Operator: l.name, Groups: l.ctx.Groups, K: r.plan.K, MaxConcurrent: r.settings.MaxConcurrent,
		Incremental: r.settings.Incremental, Own: r.deploy.Restore != nil && r.deploy.Restore.Job == r.id.Job, Restored: restored,
		Compression: compression, MaxValue: int64(r.settings.MaxValue), Dir: m.cfg.StateDir, Local: m.cfg.LocalDir, Budget: m.cfg.StateMemory,
	})
	if err != nil {
		return err
	}
	l.ctx.State = l.state
	if t, ok := l.state.(statebackend.Tender); ok {
		s.tenders = append(s.tenders, t)
	}
	return nil
}

// compressionOf is what the setting state.compression says.
func compressionOf(setting string) (statebackend.Compression, error) {
	switch setting {
	case "", "zstd": // Nothing is said by jobs from before there was the setting.
		return 0, nil
	case "off":
		return statebackend.NoCompression, nil
	}
	n, err := strconv.Atoi(setting)
	if err != nil || n < 1 || n > int(statebackend.MaxCompression) {
		return 0, fmt.Errorf("state.compression is %q", setting)
	}
	return statebackend.Compression(n), nil
}

// restore gives l what the checkpoint has of its operator.
func (s *subtask) restore(l *link, old job.OperatorSnapshot) error {
	l.ctx.Restored, l.ctx.RestoredID = true, s.run.deploy.Restore.Checkpoint
	s.committed = l.ctx.RestoredID
	same := len(old.Subtasks) == l.ctx.Parallelism
	l.ctx.Ended = true
	low := record.MaxTime
	for i, sub := range old.Subtasks {
		if same && i != s.task.Subtask {
			continue
		}
		l.ctx.Ended = l.ctx.Ended && sub.EndOfData
		low = min(low, sub.Watermark)
	}
	l.ctx.Watermark = low
	l.main.mark.Store(low)
	l.ctx.List, l.ctx.Union, l.ctx.Items = map[string][][]byte{}, map[string][][]byte{}, map[string]string{}
	l.keyed = snapshot.Keyed(old)
	return s.restoreLists(l, old)
}

// connect opens the outputs.
func (s *subtask) connect() error {
	p, r := s.run.plan, s.run
	senders := map[string][]exchange.Sender{}
	for _, id := range s.vertex.Out {
		e := p.Edges[id]
		in := r.bp.Nodes[e.ToOp].Inputs[e.Input]
		var outs []exchange.Out
		for _, ch := range p.ChannelsOut(id, s.task.Subtask) {
			o, err := s.dial(ch, e, in)
			if err != nil {
				return err
			}
			outs = append(outs, o)
			s.outs = append(s.outs, o)
			if w, ok := o.(waiter); ok {
				s.waiters = append(s.waiters, w)
			}
			if w, ok := o.(exchange.Sender); ok {
				from := p.Graph.Operators[e.FromOp].Name
				senders[from] = append(senders[from], w)
			}
		}
		newRouter := in.Router
		if e.Partition == job.Rebalance && in.Rebalance != nil {
			newRouter = in.Rebalance
		}
		router := newRouter(outs, p.K)
		s.routers = append(s.routers, router)
		for _, l := range s.chain {
			if l.name == p.Graph.Operators[e.FromOp].Name {
				o := l.output(e.Output)
				o.next = append(o.next, router)
			}
		}
	}
	s.senders.Store(&senders)
	return nil
}

func (s *subtask) dial(ch job.Channel, e job.PlanEdge, in operator.Input) (exchange.Out, error) {
	r, m := s.run, s.run.manager
	to := job.Task{Vertex: r.plan.Vertices[e.To].Name, Subtask: ch.To}
	at, err := r.place(to)
	if err != nil {
		return nil, err
	}
	if at.Worker == m.cfg.Info.ID {
		port, err := m.cfg.Directory.Lookup(r.id, ch)
		if err != nil {
			return nil, job.Errorf(job.ClassInfrastructure, "connect to %v: %w", to, err)
		}
		return m.cfg.Local(s.ctx, port), nil
	}
	if in.Frames == nil {
		return nil, job.Errorf(job.ClassRefused, "records from %q to %v cross to another TaskManager and cannot be encoded: %w", r.plan.Graph.Operators[e.FromOp].Name, to, in.NoCodec)
	}
	o, err := m.cfg.Dialer.Dial(s.ctx, at.Data, r.id, ch, in.Frames)
	if err != nil {
		return nil, job.Errorf(job.ClassInfrastructure, "connect to %v on %s at %s: %w", to, at.Worker, at.Data, err)
	}
	return o, nil
}

// counterValues sums the task's counters for a report.
func (s *subtask) counterValues() map[string]int64 {
	v := map[string]int64{}
	if len(s.chain) == 0 {
		return v
	}
	for _, l := range s.chain {
		v["late_records"] += l.counters.Late.Load()
	}
	v["records_in"] = s.chain[0].counters.In.Load()
	v["records_out"] = s.chain[len(s.chain)-1].counters.Out.Load()
	if s.vertex.Reader {
		v["records_read"] = s.chain[0].counters.Out.Load()
	}
	if len(s.vertex.Out) == 0 {
		v["records_written"] = s.chain[len(s.chain)-1].counters.In.Load()
	}
	return v
}

func (s *subtask) reader() *snapshot.Reader { return snapshot.NewReader(s.run.source) }

// restoreLists loads the list state of an operator: this subtask's share, and the whole.
func (s *subtask) restoreLists(l *link, old job.OperatorSnapshot) error {
	names := map[string]string{} // With the schema of the items.
	for _, sub := range old.Subtasks {
		for _, h := range sub.States {
			if h.Kind == snapshot.KindList || h.Kind == snapshot.KindBroadcast {
				if was, ok := names[h.Name]; ok && was != h.Codec {
					return job.Errorf(job.ClassRefused, "operator %q, state %q: subtasks of one checkpoint disagree about its schema: %s and %s", l.name, h.Name, was, h.Codec)
				}
				names[h.Name] = h.Codec
			}
		}
	}
	for name, items := range names {
		if items != opaque {
			l.ctx.Items[name] = items
		}
		share, _ := snapshot.Redistribute(old, name, s.task.Subtask, l.ctx.Parallelism)
		all, _ := snapshot.Redistribute(old, name, 0, 1)
		var err error
		if l.ctx.List[name], err = s.reader().ReadList(s.ctx, share); err != nil {
			return fmt.Errorf("state %q: %w", name, err)
		}
		if l.ctx.Union[name], err = s.reader().ReadList(s.ctx, all); err != nil {
			return fmt.Errorf("state %q: %w", name, err)
		}
	}
	return nil
}
