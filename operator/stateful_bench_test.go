package operator_test

import (
	"testing"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/dedup"
	"github.com/cairnstream/cairn/operator/join"
	"github.com/cairnstream/cairn/operator/window"
)

// BenchmarkJoins is what a record of either side costs: one of eight is of the left one, keys come again
// after 1000 records, and each left record meets eight of the right.
func BenchmarkJoins(b *testing.B) {
	f := func(x, y *item) int64 { return x.N + y.N }
	assign := window.Tumbling(time.Second).Assigner()
	for name, construct := range map[string]func(s *states) operator.CoHandler[int64, item, item, int64]{
		"windowed": func(s *states) operator.CoHandler[int64, item, item, int64] {
			return join.Windowed(s, assign, join.Inner, f)
		},
		"interval": func(s *states) operator.CoHandler[int64, item, item, int64] { return join.Interval(s, 0, 1000, f) },
		"temporal": func(s *states) operator.CoHandler[int64, item, item, int64] { return join.Temporal(s, join.Inner, f) },
		"dedup-last": func(s *states) operator.CoHandler[int64, item, item, int64] {
			h := dedup.Last[int64, item](s, func(a, b *item) bool { return a.Time > b.Time })
			return operator.CoHandler[int64, item, item, int64]{Left: operator.Through(h, func(i *item) int64 { return i.N }), Right: func(*operator.KeyedContext[int64, int64], *item) {}}
		},
	} {
		b.Run(name, func(b *testing.B) {
			operator.BenchCo(b, operator.CoProcess(keyOf, keyOf, codec.Int64(), construct), func(n int64, left bool, i *item) int64 {
				*i = item{Key: n / 8 % 125, Time: n, N: n, Name: "some name"}
				return i.Time
			})
		})
	}
}
