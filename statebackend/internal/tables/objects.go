package tables

import "github.com/cairnstream/cairn/statebackend"

// objects is how much of each object the states on which the next snapshot may build have written there, and still use. The
// states of a task share an object in each checkpoint, so one that seldom changes keeps alive what others wrote beside it and
// have written anew since.
type objects map[string]*object

type object struct{ written, used int64 }

// wrote adds what one snapshot wrote of a state.
func (o objects) wrote(p part) {
	for _, h := range p.chain[p.old:] {
		o.of(h.Object).written += h.Length
	}
}

// recount forgets objects that no state uses. Of one that was written before the backend was restored it is known only what
// is used.
func (o objects) recount(states []*state) {
	for _, ob := range o {
		ob.used = 0
	}
	for _, st := range states {
		if st.base == nil {
			continue
		}
		for _, h := range st.base.chain {
			ob := o.of(h.Object)
			ob.used += h.Length
			ob.written = max(ob.written, ob.used)
		}
	}
	for key, ob := range o {
		if ob.used == 0 {
			delete(o, key)
		}
	}
}

func (o objects) of(key string) *object {
	if o[key] == nil {
		o[key] = &object{}
	}
	return o[key]
}

// crowded tells whether a chain takes less than what is of no use in its objects. Then it is written in full, which costs less
// than what was written there in vain; so what a checkpoint keeps alive is at most about twice what it needs.
func (o objects) crowded(c statebackend.Chain) bool {
	var used, waste int64
	seen := map[string]bool{"": true} // What is inline is in no object.
	for _, h := range c {
		used += h.Length
		if ob := o[h.Object]; ob != nil && !seen[h.Object] {
			seen[h.Object] = true
			waste += ob.written - ob.used
		}
	}
	return waste > used
}
