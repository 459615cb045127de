package job

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// node builds an operator for tests; inputs are forward edges unless changed.
func node(kind Kind, name string, inputs ...Edge) Operator {
	op := Operator{Name: name, Named: true, Kind: kind, Inputs: inputs}
	switch kind {
	case KindEnumerator, KindReader, KindSink, KindProcess, KindWindow:
		op.Stateful = true
	}
	if kind == KindEnumerator {
		op.Parallelism = 1
	}
	return op
}

func from(i int, p Partition) Edge { return Edge{From: i, Partition: p, Codec: "c/1"} }

// sample has a chain, a fan-out, a keyed operator and a union.
func sample() Graph {
	return Graph{[]Operator{
		node(KindEnumerator, "src.splits"),                                            // 0
		node(KindReader, "src", from(0, Splits)),                                      // 1
		node(KindFilter, "keep", from(1, Forward)),                                    // 2
		node(KindProcess, "count", from(2, Hash)),                                     // 3
		node(KindMap, "text", from(3, Forward)),                                       // 4
		node(KindSink, "counts", from(4, Forward)),                                    // 5
		node(KindMap, "raw", from(2, Forward)),                                        // 6
		node(KindUnion, "both", from(6, Forward), from(4, Forward)),                   // 7
		node(KindSink, "all", from(7, Forward)),                                       // 8
		node(KindMap, "copy", from(7, Broadcast)),                                     // 9
		node(KindSink, "copies", from(9, Rebalance)),                                  // 10
		node(KindSink, "copies-too", Edge{From: 9, Partition: Forward, Codec: "c/1"}), // 11
	}}
}

// describe shows a plan with a line for each vertex and edge.
func describe(p *Plan) string {
	var b strings.Builder
	for i, v := range p.Vertices {
		var ops []string
		for _, n := range v.Operators {
			ops = append(ops, p.Graph.Operators[n].Name)
		}
		fmt.Fprintf(&b, "%d %s x%d [%s] in=%v out=%v", i, v.Name, v.Parallelism, strings.Join(ops, " "), v.In, v.Out)
		if v.Enumerator {
			b.WriteString(" enumerator")
		}
		if v.Reader {
			b.WriteString(" reader")
		}
		b.WriteByte('\n')
	}
	for _, e := range p.Edges {
		fmt.Fprintf(&b, "e%d %d>%d %s>%s input %d %s\n", e.ID, e.From, e.To,
			p.Graph.Operators[e.FromOp].Name, p.Graph.Operators[e.ToOp].Name, e.Input, e.Partition)
	}
	return b.String()
}

func TestPlan(t *testing.T) {
	s := DefaultSettings()
	s.Parallelism = 3
	g := sample()
	g.Operators[5].Parallelism = 2 // Breaks the chain: its edge becomes a rebalance.
	p, err := NewPlan(g, s)
	if err != nil {
		t.Fatal(err)
	}
	want := `0 src.splits x1 [src.splits] in=[] out=[0] enumerator
1 src x3 [src keep raw] in=[0] out=[1 3] reader
2 count x3 [count text] in=[1] out=[2 4]
3 counts x2 [counts] in=[2] out=[]
4 both x3 [both all] in=[3 4] out=[5]
5 copy x3 [copy copies-too] in=[5] out=[6]
6 copies x3 [copies] in=[6] out=[]
e0 0>1 src.splits>src input 0 splits
e1 1>2 keep>count input 0 hash
e2 2>3 text>counts input 0 rebalance
e3 1>4 raw>both input 0 forward
e4 2>4 text>both input 1 forward
e5 4>5 both>copy input 0 broadcast
e6 5>6 copy>copies input 0 rebalance
`
	if got := describe(p); got != want {
		t.Errorf("the plan is\n%s\nwant\n%s", got, want)
	}
	if p.Slots() != 3 || len(p.Tasks()) != 1+3+3+2+3+3+3 || p.K != DefaultMaxParallelism {
		t.Errorf("%d slots, %d tasks, %d groups", p.Slots(), len(p.Tasks()), p.K)
	}
	if p.Vertex("count") != 2 || p.Vertex("text") != -1 {
		t.Errorf("vertices of count and text: %d, %d", p.Vertex("count"), p.Vertex("text"))
	}
	if got := fmt.Sprint(p.ChannelsIn(4, 2)); got != "[e3:2>2 e4:2>2]" {
		t.Errorf("channels into both/2: %s", got)
	}
	if got := fmt.Sprint(p.ChannelsIn(3, 1)); got != "[e2:0>1 e2:1>1 e2:2>1]" {
		t.Errorf("channels into counts/1: %s", got)
	}
	if got := fmt.Sprint(p.ChannelsOut(1, 2)); got != "[e1:2>0 e1:2>1 e1:2>2]" {
		t.Errorf("channels out of src/2: %s", got)
	}
	if p.Bounded() {
		t.Error("bounded though its enumerator is not")
	}
	g.Operators[0].Bounded = true
	if p, _ = NewPlan(g, s); !p.Bounded() {
		t.Error("not bounded")
	}
}

// What one end of a channel calls it, the other end does too, and operators are in one chain each.
func TestPlanChannels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := sample()
		for i := range g.Operators {
			if g.Operators[i].Kind != KindEnumerator {
				g.Operators[i].Parallelism = rapid.SampledFrom([]int{0, 0, 1, 2, 5}).Draw(t, "p")
			}
		}
		s := DefaultSettings()
		s.Parallelism = rapid.IntRange(1, 5).Draw(t, "job's")
		p, err := NewPlan(g, s)
		if err != nil {
			t.Fatal(err)
		}
		in, out := map[Channel]int{}, map[Channel]int{}
		seen := map[int]int{}
		slots := 1
		for v, vx := range p.Vertices {
			for _, n := range vx.Operators {
				seen[n]++
			}
			if !vx.Enumerator {
				slots = max(slots, vx.Parallelism)
			}
			for i := range vx.Parallelism {
				for _, c := range p.ChannelsIn(v, i) {
					in[c]++
				}
				for _, e := range vx.Out {
					for _, c := range p.ChannelsOut(e, i) {
						out[c]++
					}
				}
			}
		}
		if len(in) != len(out) {
			t.Fatalf("%d receiving ends, %d sending ends", len(in), len(out))
		}
		for c, n := range in {
			if n != 1 || out[c] != 1 {
				t.Fatalf("channel %v: %d receiving ends, %d sending ends", c, n, out[c])
			}
		}
		for n := range g.Operators {
			if seen[n] != 1 {
				t.Fatalf("operator %d is in %d chains", n, seen[n])
			}
		}
		for _, e := range p.Edges {
			same := p.Vertices[e.From].Parallelism == p.Vertices[e.To].Parallelism
			if e.Partition == Forward && !same {
				t.Fatalf("forward edge %d between different parallelisms", e.ID)
			}
			if !slices.Contains(p.Vertices[e.From].Out, e.ID) || !slices.Contains(p.Vertices[e.To].In, e.ID) {
				t.Fatalf("edge %d is not known to both ends", e.ID)
			}
		}
		if p.Slots() != slots {
			t.Fatalf("%d slots, want %d", p.Slots(), slots)
		}
	})
}

func TestPlanRefused(t *testing.T) {
	s := DefaultSettings()
	s.MaxParallelism = 4
	g := sample()
	g.Operators[3].Parallelism, g.Operators[9].Parallelism = 5, 6
	_, err := NewPlan(g, s)
	for _, want := range []string{`"count": parallelism 5`, `"copy": parallelism 6`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	if _, err := NewPlan(Graph{}, s); err == nil {
		t.Error("a plan of nothing")
	}
}
