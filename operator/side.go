package operator

import "github.com/cairnstream/cairn/record"

// Side is an output of an operator beside its main one, such as for records that came too late.
type Side[V any] struct {
	col *Collector[V] // nil while the job is being built.
	now *int64        // Event time of the record or timer being processed.
}

// Emit emits v with the event time of the record or timer being processed.
func (s *Side[V]) Emit(v V) {
	s.col.time = *s.now
	s.col.Emit(v)
}

// sideOutput is a Side of any type, as its operator sees it.
type sideOutput interface {
	mark(record.Mark)
	done() error
	drop()
}

// sides are the side outputs of an operator. The zero value has none.
type sides []sideOutput

// mark puts m behind what was emitted, on every side output: their readers need watermarks too.
func (s sides) mark(m record.Mark) {
	for _, o := range s {
		o.mark(m)
	}
}

// done hands on what was emitted and returns the first error.
func (s sides) done() error {
	for _, o := range s {
		if err := o.done(); err != nil {
			return err
		}
	}
	return nil
}

func (s sides) drop() {
	for _, o := range s {
		o.drop()
	}
}
