package pace

import (
	"context"
	"sync"
	"time"
)

// The readers of one subtask share a gate: a subtask reads several splits in turn. They know each other by the context
// that the subtask opens all of its splits with.
var shared = struct {
	sync.Mutex
	gates map[key]*entry
}{gates: map[key]*entry{}}

type key struct {
	ctx    context.Context
	source string
}

type entry struct {
	gate  *Gate
	users int
}

// Join returns the gate of the subtask that opens splits of source with ctx, and makes it if it is not there; rate is
// that of the subtask. All of its users are on one goroutine. leave gives the gate up; the last one closes it.
func Join(ctx context.Context, source string, rate float64, now func() time.Time, wake func()) (gate *Gate, leave func()) {
	if rate <= 0 {
		return nil, func() {}
	}
	k := key{ctx, source}
	shared.Lock()
	defer shared.Unlock()
	e := shared.gates[k]
	if e == nil {
		e = &entry{gate: New(rate, now, wake)}
		shared.gates[k] = e
	}
	e.users++
	return e.gate, sync.OnceFunc(func() {
		shared.Lock()
		defer shared.Unlock()
		if e.users--; e.users == 0 {
			e.gate.Close()
			delete(shared.gates, k)
		}
	})
}
