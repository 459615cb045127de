package tables

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// openTrees takes what the backend pebble wrote of the operator.
func (p *restore) openTrees(handles []job.StateHandle) (err error) {
	i := slices.IndexFunc(handles, func(h job.StateHandle) bool { return h.Kind == statebackend.KindTree })
	if i < 0 {
		return nil
	}
	if p.cfg.Trees == nil {
		return &job.Error{Class: job.ClassRefused, Err: fmt.Errorf(
			"operator %q: restore: state %q was written with state.backend=pebble, which this backend does not read: keep state.backend=pebble", p.cfg.Operator, handles[i].Name)}
	}
	if p.trees, err = p.cfg.Trees(p.ctx, p.reader, p.cfg.Params, handles); err != nil {
		return err
	}
	p.inTrees = map[string]bool{}
	for _, name := range p.trees.Names() {
		p.inTrees[name] = true
	}
	return nil
}

// unopened names the states that nobody has opened.
func (p *restore) unopened() []string {
	names := maps.Clone(p.inTrees)
	if names == nil {
		names = map[string]bool{}
	}
	for name := range p.chains {
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func (p *restore) closeTrees() error {
	if p.trees == nil {
		return nil
	}
	if err := p.trees.Close(); err != nil {
		return fmt.Errorf("operator %q: close the files of a restore: %w", p.cfg.Operator, err)
	}
	return nil
}

// loadTrees adds the entries of s in trees to its table.
func (p *restore) loadTrees(s *state) error {
	var (
		run    []byte
		n      int64
		group  int
		schema string
	)
	flush := func() error {
		if n == 0 {
			return nil
		}
		decode, err := p.decoder(s, schemas{s.key, schema})
		if err == nil {
			if err = s.table.Load(group, n, run, decode, false); err != nil {
				err = corrupt("key group %d: %v", group, err)
			}
		}
		run, n = run[:0], 0
		return err
	}
	err := p.trees.Each(s.name, func(g int, of string, key, value []byte) error {
		if g != group || of != schema || len(run) >= runBytes {
			if err := flush(); err != nil {
				return err
			}
			group, schema = g, of
		}
		run = append(append(run, key...), value...)
		n++
		return nil
	})
	if err == nil {
		if err = flush(); err != nil {
			err = fmt.Errorf("operator %q: restore state %q: %w", p.cfg.Operator, s.name, err)
		}
	}
	if err != nil {
		return err
	}
	if delete(p.inTrees, s.name); len(p.inTrees) > 0 {
		return nil
	}
	return p.closeTrees()
}
