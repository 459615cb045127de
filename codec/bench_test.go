package codec

import (
	"fmt"
	"testing"
	"time"
)

func BenchmarkHash(b *testing.B) {
	var ints []int64
	var short, long []string
	var pairs [][2]int64
	for i := range int64(benchRows) {
		ints = append(ints, i*977)
		short = append(short, fmt.Sprintf("key-%06d", i))
		long = append(long, fmt.Sprintf("customer/europe/north/%018d", i))
		pairs = append(pairs, [2]int64{i, -i})
	}
	b.Run("int64", func(b *testing.B) { benchHash(b, Int64(), ints) })
	b.Run("string-10", func(b *testing.B) { benchHash(b, String(), short) })
	b.Run("string-40", func(b *testing.B) { benchHash(b, String(), long) })
	b.Run("struct-16", func(b *testing.B) { benchHash(b, MustStruct[[2]int64](), pairs) })
}

// benchRows is how many rows one operation of the bulk benchmarks has.
const benchRows = 256

func perRow(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchRows, "ns/row")
}

var sink uint64

func benchHash[K any](b *testing.B, c Codec[K], keys []K) {
	h := NewHasher(c)
	b.ReportAllocs()
	for b.Loop() {
		sum := uint64(0)
		for i := range keys {
			sum += h(&keys[i])
		}
		sink += sum
	}
	perRow(b)
}

func BenchmarkCodec(b *testing.B) {
	b.Run("int64", func(b *testing.B) { benchCodec(b, Int64(), 5) })
	b.Run("string-10", func(b *testing.B) { benchCodec(b, String(), "0123456789") })
	b.Run("struct-24", func(b *testing.B) { benchCodec(b, MustStruct[tick](), tick{1, 2, 3}) })
	b.Run("struct-80", func(b *testing.B) { benchCodec(b, MustStruct[quote](), quote{At: 1, Open: true}) })
	b.Run("strings", func(b *testing.B) { benchCodec(b, MustStruct[line](), line{"sku-00017", 3, 9.5}) })
	b.Run("order", func(b *testing.B) {
		benchCodec(b, MustStruct[order](), order{
			ID: 1, Customer: "customer-1", Note: "leave at the door", At: time.Unix(1700000000, 0).UTC(),
			Lines: []line{{"sku-1", 1, 2}, {"sku-2", 3, 4}},
		})
	})
	b.Run("map-8", func(b *testing.B) {
		benchCodec(b, MustStruct[map[string]int64](), map[string]int64{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 7, "h": 8})
	})
	b.Run("json-order", func(b *testing.B) {
		benchCodec(b, JSON[order](), order{ID: 1, Customer: "customer-1", Lines: []line{{"sku-1", 1, 2}}})
	})
}

func benchCodec[T any](b *testing.B, c Codec[T], v T) {
	buf, err := c.Append(nil, &v)
	if err != nil {
		b.Fatal(err)
	}
	var got T
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = c.Append(buf[:0], &v)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = c.Decode(buf, &got)
		}
	})
	b.Run("copy", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.Copy(&got, &v)
		}
	})
	bulk, ok := c.(Bulk[T])
	if !ok {
		return
	}
	vs := make([]T, benchRows)
	for i := range vs {
		vs[i] = v
	}
	all, err := bulk.AppendAll(nil, vs)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("append-256", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			all, _ = bulk.AppendAll(all[:0], vs)
		}
		perRow(b)
		b.SetBytes(int64(len(all)))
	})
	b.Run("decode-256", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = bulk.DecodeAll(all, vs)
		}
		perRow(b)
		b.SetBytes(int64(len(all)))
	})
}

type sixOld struct {
	ID    int64
	Count int32
	Name  string
	Price float32
	At    time.Time
	Gone  string
}

type sixNew struct {
	Name  string
	ID    int64
	Count int64
	Price float64
	At    time.Time
	New   int64
}

// BenchmarkEvolve compares decoding by an evolved program with decoding by the type's own.
func BenchmarkEvolve(b *testing.B) {
	old, now := MustStruct[sixOld](), MustStruct[sixNew]()
	evolved, err := Evolve(now, old.Schema())
	if err != nil {
		b.Fatal(err)
	}
	v := sixOld{1, 2, "a name", 0.5, time.Unix(5, 6), "gone"}
	src, err := old.Append(nil, &v)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("plain", func(b *testing.B) {
		b.ReportAllocs()
		var x sixOld
		for range b.N {
			_, _ = old.Decode(src, &x)
		}
	})
	b.Run("evolved", func(b *testing.B) {
		b.ReportAllocs()
		var x sixNew
		for range b.N {
			_, _ = evolved.Decode(src, &x)
		}
	})
}
