package tables

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/segment"
)

// restore is what a checkpoint has of an operator, as far as it is not loaded yet.
type restore struct {
	ctx     context.Context // Restore's: it governs the reads of an Open that comes later.
	reader  statebackend.Reader
	cfg     Config
	handles map[string][]job.StateHandle // By state; those with entries of this subtask's groups.
	schemas map[string][]schemas         // By state: those of all its handles.
	// What decodes the values of a state that were written under some schemas.
	decoders map[decoderOf]statebackend.Decoder

	stored, raw []byte
}

// schemas are the texts of the schemas of a state's keys and values.
type schemas struct{ key, value string }

type decoderOf struct {
	state string
	schemas
}

func newRestore(ctx context.Context, r statebackend.Reader, c Config, handles []job.StateHandle) *restore {
	p := &restore{
		ctx: ctx, reader: r, cfg: c, handles: map[string][]job.StateHandle{},
		schemas: map[string][]schemas{}, decoders: map[decoderOf]statebackend.Decoder{},
	}
	for _, h := range handles {
		if h.Kind != statebackend.KindKeyed {
			continue
		}
		if of := (schemas{h.Key, h.Codec}); !slices.Contains(p.schemas[h.Name], of) {
			p.schemas[h.Name] = append(p.schemas[h.Name], of)
		}
		if _, ok := p.handles[h.Name]; !ok {
			p.handles[h.Name] = nil
		}
		if h.Groups.Intersect(c.Groups).Len() > 0 {
			p.handles[h.Name] = append(p.handles[h.Name], h)
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

// load fills s with what the checkpoint has for it.
func (p *restore) load(s *state) error {
	if err := p.check(s); err != nil {
		return err
	}
	for _, h := range p.handles[s.name] {
		if err := p.loadHandle(s, h); err != nil {
			return fmt.Errorf("operator %q: restore state %q of key groups %v from %s: %w", p.cfg.Operator, s.name, h.Groups, where(h), err)
		}
	}
	delete(p.handles, s.name)
	if len(p.handles) == 0 {
		p.stored, p.raw = nil, nil
	}
	return nil
}

// where names the place of a handle's bytes.
func where(h job.StateHandle) string {
	if h.Object == "" {
		return "the checkpoint's metadata"
	}
	return fmt.Sprintf("object %s, bytes %d to %d", h.Object, h.Offset, h.Offset+h.Length)
}

func (p *restore) loadHandle(s *state, h job.StateHandle) error {
	ix, err := p.index(h)
	if err != nil {
		return err
	}
	switch {
	case h.Index != ix.Hash:
		return corrupt("the hash of its index is %s, the checkpoint has %s", ix.Hash, h.Index)
	case ix.First != h.Groups.First || ix.Last != h.Groups.Last || ix.Entries != h.Entries:
		return corrupt("it holds %d entries of key groups [%d,%d], the checkpoint has %d of %v", ix.Entries, ix.First, ix.Last, h.Entries, h.Groups)
	case ix.K != p.cfg.K:
		return &job.Error{Class: job.ClassRefused, Err: fmt.Errorf("it was written with max-parallelism %d, the job has %d: max-parallelism is fixed for the life of the state", ix.K, p.cfg.K)}
	}
	value, err := p.decoder(s, schemas{ix.Key, ix.Value})
	if err != nil {
		return err
	}
	blocks := ix.Overlapping(p.cfg.Groups)
	if len(blocks) == 0 {
		return nil
	}
	first, last := blocks[0], blocks[len(blocks)-1]
	body, err := p.reader.Range(p.ctx, h, first.Offset, last.Offset+last.Stored-first.Offset)
	if err != nil {
		return err
	}
	defer body.Close()
	for _, b := range blocks {
		if err := p.loadBlock(s, value, b, body); err != nil {
			return err
		}
	}
	return nil
}

func (p *restore) loadBlock(s *state, value statebackend.Decoder, b segment.Block, body io.Reader) error {
	if int64(cap(p.stored)) < b.Stored {
		p.stored = make([]byte, b.Stored)
	}
	stored := p.stored[:b.Stored]
	if _, err := io.ReadFull(body, stored); err != nil {
		return fmt.Errorf("block at byte %d: %w", b.Offset, err)
	}
	content, err := b.Decode(stored, &p.raw)
	if err != nil {
		return err
	}
	return b.Runs(content, func(group int, entries int64, data []byte) error {
		if !p.cfg.Groups.Contains(group) {
			return nil
		}
		if err := s.table.Load(group, entries, data, value); err != nil {
			return corrupt("block at byte %d, key group %d: %v", b.Offset, group, err)
		}
		return nil
	})
}

// index reads a segment's trailer, nearly always by one read.
func (p *restore) index(h job.StateHandle) (*segment.Index, error) {
	for n := min(h.Length, segment.TailGuess); ; {
		body, err := p.reader.Range(p.ctx, h, h.Length-n, n)
		if err != nil {
			return nil, err
		}
		tail, err := io.ReadAll(body)
		err = errors.Join(err, body.Close())
		if err != nil {
			return nil, fmt.Errorf("index: %w", err)
		}
		ix, need, err := segment.ParseTail(tail, h.Length)
		if err != nil || ix != nil {
			return ix, err
		}
		if need <= n {
			return nil, corrupt("its index cannot be read")
		}
		n = need
	}
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", statebackend.ErrCorrupt, fmt.Sprintf(format, args...))
}
