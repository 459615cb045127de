package tables

import (
	"sync"

	"github.com/cairnstream/cairn/job"
)

// maxWritten is how many snapshots that were written are remembered until one of them is committed. There are more only
// after many checkpoints in a row that failed elsewhere; then the next is a full one.
const maxWritten = 16

// written is what snapshots consist of that were written and may come to be committed. Snapshots are written on other
// goroutines than the owner's.
type written struct {
	mu struct {
		sync.Mutex
		list []writtenSnapshot // In the order in which they were written.
	}
}

type writtenSnapshot struct {
	id    job.CheckpointID
	parts []part
}

func (w *written) put(id job.CheckpointID, parts []part) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := w.mu.list[:0]
	for _, s := range w.mu.list {
		if s.id != id { // Else it was written again.
			kept = append(kept, s)
		}
	}
	clear(w.mu.list[len(kept):])
	if len(kept) == maxWritten {
		kept = append(kept[:0], kept[1:]...)
	}
	w.mu.list = append(kept, writtenSnapshot{id, parts})
}

// take gives what a snapshot that is committed consists of, and forgets it and those before it.
func (w *written) take(id job.CheckpointID) (parts []part, found bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var kept []writtenSnapshot
	for _, s := range w.mu.list {
		if s.id == id {
			parts, found = s.parts, true
		}
		if s.id > id {
			kept = append(kept, s)
		}
	}
	w.mu.list = kept
	return parts, found
}
