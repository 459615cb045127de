package operator

import (
	"fmt"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// Router deals the batches of one output out to the channels of one edge. What it holds back to
// fill frames leaves at Flush.
type Router interface {
	Output
	// Drain gives out what is being combined, ahead of a barrier or the end. Flush sends it.
	Drain() error
	// Flush sends what is held back.
	Flush() error
	// Holding tells whether something is held back.
	Holding() bool
	// Close releases what is held back.
	Close()
}

// RouterFactory makes the router of one edge for one sending subtask. outs are in the order of the
// receiving subtasks; k is the number of key groups.
type RouterFactory func(outs []exchange.Out, k int) Router

// builders holds a batch being filled per channel. A channel without records has none.
type builders[T any] struct {
	outs    []exchange.Out
	pacers  []exchange.Pacer // Nil for channels without.
	pool    *record.Pool[T]
	rows    int
	limits  []int // Rows of a channel's open batch.
	open    []*record.Batch[T]
	holding int // Channels with an open batch.
}

// manyOuts is the number of channels of a router from which on their batches are small ones: 100 subtasks that send to 100
// would have some 400 MiB of full ones open.
const manyOuts = 32

func newBuilders[T any](outs []exchange.Out) builders[T] {
	p := record.PoolOf[T]()
	if len(outs) > manyOuts {
		p = record.SmallPoolOf[T]()
	}
	b := builders[T]{
		outs: outs, pool: p, rows: p.Rows(), open: make([]*record.Batch[T], len(outs)),
		pacers: make([]exchange.Pacer, len(outs)), limits: make([]int, len(outs)),
	}
	for i, o := range outs {
		b.pacers[i], _ = o.(exchange.Pacer)
	}
	return b
}

// limit is how many rows the next batch of ch has at most.
func (s *builders[T]) limit(ch int) int {
	if p := s.pacers[ch]; p != nil {
		return min(s.rows, p.Rows())
	}
	return s.rows
}

func (s *builders[T]) at(ch int) *record.Batch[T] {
	b := s.open[ch]
	if b == nil {
		b = s.pool.Get()
		s.open[ch], s.limits[ch] = b, s.limit(ch)
		s.holding++
	}
	return b
}

func (s *builders[T]) send(ch int) error {
	b := s.open[ch]
	if b == nil {
		return nil
	}
	s.open[ch] = nil
	s.holding--
	return s.outs[ch].Send(b)
}

// fit makes the open batch of ch take rows with or without times: a batch has times for all of its
// rows or for none.
func (s *builders[T]) fit(ch int, times bool) error {
	if b := s.open[ch]; b != nil && len(b.Rows) > 0 && (len(b.Times) > 0) != times {
		return s.send(ch)
	}
	return nil
}

func (s *builders[T]) fitAll(times bool) error {
	if s.holding == 0 {
		return nil
	}
	for ch := range s.open {
		if err := s.fit(ch, times); err != nil {
			return err
		}
	}
	return nil
}

// markAll puts m behind what every channel has so far.
func (s *builders[T]) markAll(m record.Mark) {
	for ch := range s.outs {
		s.at(ch).Mark(m.Kind, m.Time)
	}
}

// absorb moves b to channel ch: as it is when it is worth a frame of its own or keeps its order
// only so, else row by row behind what is held.
func (s *builders[T]) absorb(ch int, b *record.Batch[T]) error {
	limit := s.limit(ch)
	if n := b.Len(); n >= s.rows/2 && (limit == s.rows || n <= limit) {
		if err := s.send(ch); err != nil {
			b.Release()
			return err
		}
		return s.outs[ch].Send(b)
	}
	hasTimes := len(b.Times) > 0
	if b.Len() > 0 {
		if err := s.fit(ch, hasTimes); err != nil {
			b.Release()
			return err
		}
	}
	to := s.at(ch)
	if len(to.Rows) > 0 && len(to.Rows)+b.Len() > s.limits[ch] {
		if err := s.send(ch); err != nil {
			b.Release()
			return err
		}
		to = s.at(ch)
	}
	var err error
	spans(b, func(i int) {
		if len(to.Rows) >= s.limits[ch] {
			if e := s.send(ch); e != nil && err == nil {
				err = e
			}
			to = s.at(ch)
		}
		to.Rows = append(to.Rows, b.Rows[i])
		if hasTimes {
			to.Times = append(to.Times, b.Times[i])
		}
	}, func(m record.Mark) { to.Mark(m.Kind, m.Time) })
	b.Release()
	return err
}

// Drain has nothing to do: what is held back are records as they came.
func (s *builders[T]) Drain() error { return nil }

func (s *builders[T]) Flush() error {
	if s.holding == 0 {
		return nil
	}
	for ch := range s.open {
		if err := s.send(ch); err != nil {
			return err
		}
	}
	return nil
}

func (s *builders[T]) Holding() bool { return s.holding > 0 }

func (s *builders[T]) Close() {
	for ch, b := range s.open {
		if b != nil {
			b.Release()
			s.open[ch] = nil
		}
	}
	s.holding = 0
}

// evenRouter deals batches out without looking at records.
type evenRouter[T any] struct {
	builders[T]
	how  job.Partition
	next int // Of rebalance: the channel of the next row.
}

func even[T any](how job.Partition) RouterFactory {
	return func(outs []exchange.Out, _ int) Router {
		return &evenRouter[T]{builders: newBuilders[T](outs), how: how}
	}
}

// ForwardRouter sends everything to the one receiver of a forward edge.
func ForwardRouter[T any]() RouterFactory { return even[T](job.Forward) }

// RebalanceRouter deals batches out in turn. Marks go to every receiver.
func RebalanceRouter[T any]() RouterFactory { return even[T](job.Rebalance) }

// BroadcastRouter gives every receiver a copy of each batch.
func BroadcastRouter[T any]() RouterFactory { return even[T](job.Broadcast) }

func (r *evenRouter[T]) Emit(a record.Any) error {
	b := batchOf[T](a)
	switch {
	case r.how == job.Broadcast:
		return r.broadcast(b)
	case r.how == job.Rebalance && len(r.outs) > 1:
		return r.rebalance(b)
	}
	return r.absorb(0, b)
}

func (r *evenRouter[T]) rebalance(b *record.Batch[T]) error {
	hasTimes := len(b.Times) > 0
	err := r.fitAll(hasTimes)
	spans(b, func(i int) {
		to := r.at(r.next)
		to.Rows = append(to.Rows, b.Rows[i])
		if hasTimes {
			to.Times = append(to.Times, b.Times[i])
		}
		if len(to.Rows) >= r.limits[r.next] && err == nil {
			err = r.send(r.next)
		}
		if r.next++; r.next == len(r.outs) {
			r.next = 0
		}
	}, r.markAll)
	b.Release()
	return err
}

func (r *evenRouter[T]) broadcast(b *record.Batch[T]) error {
	for ch := range len(r.outs) - 1 {
		if err := r.absorb(ch, b.Clone().(*record.Batch[T])); err != nil {
			b.Release()
			return err
		}
	}
	return r.absorb(len(r.outs)-1, b)
}

type splitRouter struct{ builders[SplitMessage] }

// SplitRouter sends each split to the reader that it names.
func SplitRouter() RouterFactory {
	return func(outs []exchange.Out, _ int) Router { return &splitRouter{newBuilders[SplitMessage](outs)} }
}

func (r *splitRouter) Emit(a record.Any) error {
	b := batchOf[SplitMessage](a)
	defer b.Release()
	for i := range b.Rows {
		to := int(b.Rows[i].Reader)
		if to < 0 || to >= len(r.outs) {
			return fmt.Errorf("a split for reader %d of %d", to, len(r.outs))
		}
		t := r.at(to)
		t.Append(b.Rows[i], record.MinTime)
	}
	return r.Flush()
}

type hashRouter[K comparable, T any] struct {
	builders[T]
	key    func(*T) K
	hash   func(*K) uint64
	k      int
	owners []int32 // Receiver of each key group.
	cur    K
}

// HashRouter sends each record to the owner of its key's group.
func HashRouter[K comparable, T any](key func(*T) K, kc codec.Codec[K]) RouterFactory {
	return func(outs []exchange.Out, k int) Router {
		r := &hashRouter[K, T]{builders: newBuilders[T](outs), key: key, hash: codec.NewHasher(kc), k: k}
		r.owners = make([]int32, k)
		for g := range r.owners {
			r.owners[g] = int32(job.OwnerOf(g, k, len(outs)))
		}
		return r
	}
}

func (r *hashRouter[K, T]) Emit(a record.Any) error {
	b := batchOf[T](a)
	if len(r.outs) == 1 {
		return r.absorb(0, b)
	}
	hasTimes := len(b.Times) > 0
	if err := r.fitAll(hasTimes); err != nil {
		b.Release()
		return err
	}
	start := 0
	for m := 0; ; m++ {
		end := b.Len()
		if m < len(b.Marks) {
			end = b.SelIndex(b.Marks[m].Pos)
		}
		for n := start; n < end; n++ {
			i := n
			if b.Sel != nil {
				i = int(b.Sel[n])
			}
			row := &b.Rows[i]
			r.cur = r.key(row)
			h := r.hash(&r.cur)
			ch := int(r.owners[h%uint64(r.k)])
			to := r.open[ch]
			if to == nil {
				to = r.at(ch)
			}
			to.Rows = append(to.Rows, *row)
			to.Hash = append(to.Hash, h)
			if hasTimes {
				to.Times = append(to.Times, b.Times[i])
			}
			if len(to.Rows) >= r.limits[ch] {
				if err := r.send(ch); err != nil {
					b.Release()
					return err
				}
			}
		}
		if m == len(b.Marks) {
			break
		}
		r.markAll(b.Marks[m])
		start = end
	}
	b.Release()
	return nil
}
