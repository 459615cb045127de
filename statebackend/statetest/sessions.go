package statetest

import (
	"fmt"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/statebackend"
)

// session is a value that ages, as those of states with a TTL do: what has expired is in the state until a clean-up finds it.
type session struct {
	from int64 // Milliseconds since 1970.
	n    int64
}

// sessionTTL is in milliseconds.
const sessionTTL = 1000

func expired(from, now int64) bool { return now-from >= sessionTTL }

// sessionCodec encodes a session as 8 bytes of time and the rest, which is what statebackend.ValueDesc.Aged promises.
type sessionCodec struct{ codec.Codec[int64] }

func (c sessionCodec) Append(dst []byte, v *session) ([]byte, error) {
	dst, err := c.Codec.Append(dst, &v.from)
	if err != nil {
		return dst, err
	}
	return c.Codec.Append(dst, &v.n)
}

func (c sessionCodec) Decode(src []byte, v *session) (int, error) {
	n, err := c.Codec.Decode(src, &v.from)
	if err != nil {
		return n, err
	}
	m, err := c.Codec.Decode(src[n:], &v.n)
	return n + m, err
}

func (c sessionCodec) Copy(dst, src *session) { *dst = *src }

func (c sessionCodec) Schema() codec.Schema { return codec.Schema{Codec: "session", Version: 1} }

func sessions() statebackend.ValueDesc[int64, session] {
	return statebackend.ValueDesc[int64, session]{Name: "sessions", Key: codec.Int64(), Value: sessionCodec{codec.Int64()}, Hash: hashInt, Aged: true}
}

// finder is the state if it finds by itself what has expired.
func (s *subtask) finder() (statebackend.Expiring[int64], bool) {
	f, ok := s.sessions.v.(statebackend.Expiring[int64])
	return f, ok && f.Aging()
}

// look reads the clock of a subtask, which does not go back when the machine's does.
func (s *subtask) look(clock int64) { s.now = max(s.now, clock) }

// begin sets the clock of a subtask that was restored: it is not before anything that the state has.
func (s *subtask) begin(clock int64) {
	s.look(clock)
	if f, ok := s.finder(); ok {
		s.look(f.Newest())
		return
	}
	for _, v := range s.sessions.v.All() {
		s.look(v.from)
	}
}

// touch uses a session as a state with a TTL from the last change does.
func (s *subtask) touch(want map[int64]session, k, by int64) error {
	v, fresh := s.sessions.upsert(k)
	w, ok := want[k]
	if fresh == ok || *v != w {
		return fmt.Errorf("session %d is %v, fresh %v, want %v", k, *v, fresh, w)
	}
	if expired(v.from, s.now) {
		*v, w = session{}, session{}
	}
	v.from, w.from = s.now, s.now
	v.n += by
	w.n += by
	want[k] = w
	return nil
}

// see tells what the user sees of a session.
func (s *subtask) see(want map[int64]session, k int64) error {
	v := s.sessions.get(k)
	w, ok := want[k]
	switch {
	case (v != nil) != ok || ok && *v != w:
		return fmt.Errorf("session %d is %v, want %v, %v", k, v, w, ok)
	case ok && w.from > s.now:
		return fmt.Errorf("session %d began at %d, and it is %d", k, w.from, s.now)
	}
	return nil
}

// sweep removes up to n sessions that have expired, as the clean-up of a state with a TTL does; it tells whether more may be left.
func (s *subtask) sweep(want map[int64]session, n int) (more bool, err error) {
	before := s.now - sessionTTL + 1
	var found []int64
	if f, ok := s.finder(); ok {
		more = f.Old(before, n, func(k *int64) { found = append(found, *k) })
	} else {
		for k, v := range s.sessions.v.All() {
			if v.from >= before {
				continue
			}
			if more = len(found) == n; more {
				break
			}
			found = append(found, *k)
		}
	}
	if len(found) > n {
		return false, fmt.Errorf("%d sessions are said to have expired, at most %d were asked for", len(found), n)
	}
	for _, k := range found {
		if err := s.see(want, k); err != nil {
			return false, err
		}
		if v := s.sessions.get(k); v == nil || v.from >= before {
			continue // It changed since it was stored.
		}
		if !s.sessions.remove(k) {
			return false, fmt.Errorf("session %d has expired and cannot be removed", k)
		}
		delete(want, k)
	}
	return more, nil
}
