package tables

import (
	"context"
	"fmt"
	"slices"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// restore is what a checkpoint has of an operator, as far as it is not loaded yet.
type restore struct {
	ctx     context.Context // Restore's: it governs the reads of an Open that comes later.
	reader  statebackend.Reader
	cfg     Config
	chains  map[string][]statebackend.Chain // By state; those with entries of this subtask's groups.
	schemas map[string][]schemas            // By state: those of all its handles.
	// What decodes the values of a state that were written under some schemas.
	decoders map[decoderOf]statebackend.Decoder
	trees    statebackend.TreeStates // Nil when there are none. Closed when the last state is loaded.
	inTrees  map[string]bool         // States that nobody has opened.
}

// schemas are the texts of the schemas of a state's keys and values.
type schemas struct{ key, value string }

type decoderOf struct {
	state string
	schemas
}

func newRestore(ctx context.Context, r statebackend.Reader, cfg Config, chains []statebackend.Chain) *restore {
	p := &restore{
		ctx: ctx, reader: r, cfg: cfg, chains: map[string][]statebackend.Chain{},
		schemas: map[string][]schemas{}, decoders: map[decoderOf]statebackend.Decoder{},
	}
	for _, c := range chains {
		h := c[0]
		if of := (schemas{h.Key, h.Codec}); !slices.Contains(p.schemas[h.Name], of) {
			p.schemas[h.Name] = append(p.schemas[h.Name], of)
		}
		if _, ok := p.chains[h.Name]; !ok {
			p.chains[h.Name] = nil
		}
		if h.Groups.Intersect(cfg.Groups).Len() > 0 {
			p.chains[h.Name] = append(p.chains[h.Name], c)
		}
	}
	return p
}

// check tells whether the values of s can be read. Every handle counts, also those of other groups, so that all
// subtasks agree.
func (p *restore) check(s *state) error {
	for _, of := range p.schemas[s.name] {
		if _, err := p.decoder(s, of); err != nil {
			return err
		}
	}
	if p.trees != nil {
		return p.trees.Check(s.typ)
	}
	return nil
}

// decoder returns what decodes values of s that were written under those schemas, nil for s's own.
func (p *restore) decoder(s *state, of schemas) (statebackend.Decoder, error) {
	at := decoderOf{s.name, of}
	if d, ok := p.decoders[at]; ok {
		return d, nil
	}
	d, err := statebackend.Evolve(s.typ, p.cfg.Operator, of.key, of.value)
	if err == nil {
		p.decoders[at] = d
	}
	return d, err
}

// load fills s with what the checkpoint has for it. The chain is not nil if that is all of one chain and nothing else, so
// that a snapshot may build on it.
func (p *restore) load(s *state) (statebackend.Chain, error) {
	if err := p.check(s); err != nil {
		return nil, err
	}
	chains := p.chains[s.name]
	var list []*link
	for _, c := range chains {
		var before *link
		for _, h := range c {
			l := &link{StateHandle: h, before: before}
			list = append(list, l)
			before = l
		}
	}
	if err := p.loadLinks(s, list); err != nil {
		return nil, err
	}
	delete(p.chains, s.name)
	if p.inTrees[s.name] {
		return nil, p.loadTrees(s)
	}
	if len(chains) != 1 || chains[0][0].Groups != p.cfg.Groups {
		return nil, nil
	}
	// All of a chain is of one schema: one that is older is read by a program of now, but perhaps not by the one after that.
	if h := chains[0][0]; h.Key != s.key || h.Codec != s.value {
		return nil, nil
	}
	return chains[0], nil
}

// named says of what an error is.
func (p *restore) named(s *state, h job.StateHandle, err error) error {
	return fmt.Errorf("operator %q: restore state %q of key groups %v from %s: %w", p.cfg.Operator, s.name, h.Groups, where(h), err)
}

// where names the place of a handle's bytes.
func where(h job.StateHandle) string {
	if h.Object == "" {
		return "the checkpoint's metadata"
	}
	return fmt.Sprintf("object %s, bytes %d to %d", h.Object, h.Offset, h.Offset+h.Length)
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", statebackend.ErrCorrupt, fmt.Sprintf(format, args...))
}
