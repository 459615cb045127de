package nexmark

import (
	"time"

	"github.com/cairnstream/cairn/connector/nexmark"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/stream"
)

const (
	windowSize = 10 * time.Second
	slide      = 2 * time.Second
)

// windowCount is the number of bids that a bidder made, or an auction got, in a window.
type windowCount struct{ Key, Bids, Start, End int64 }

// count counts the records of each window by key.
var count = window.Functions[int64, int64, int64, windowCount]{
	AddTo:   func(bids *int64, _ *int64) { *bids++ },
	MergeOf: func(into, from *int64) { *into += *from },
	ResultOf: func(p window.Pane[int64], bids *int64) windowCount {
		return windowCount{p.Key, *bids, p.Start, p.End}
	},
}

func countRow(dst []byte, r *windowCount) []byte { return ints(dst, r.Key, r.Bids, r.Start, r.End) }

func itself(v *int64) int64 { return *v }

// bidders is the stream of who made each bid.
func bidders(j *builder) stream.Stream[int64] {
	return j.events().Filter("bids", isBid).Map("bidder", func(e *nexmark.Event) int64 { return e.Bid.Bidder })
}

// q5: the auctions with the most bids in windows of 10 s, every 2 s.
func q5(j *builder) {
	counts := j.events().Filter("bids", isBid).
		Map("auction", func(e *nexmark.Event) int64 { return e.Bid.Auction }).
		KeyBy(itself).
		SlidingWindow("count", window.Sliding(windowSize, slide)).
		Aggregate(count)
	// The counts of a window have its end as their time, and no others are in the same 2 s.
	hottest := counts.
		KeyBy(func(c *windowCount) int64 { return c.Start }).
		Window("hottest", window.Tumbling(slide)).
		AggregateThen(highest[int64](func(c *windowCount) int64 { return c.Bids }), emitAll)
	sink(j, hottest, func(dst []byte, r *windowCount) []byte { return ints(dst, r.Start, r.End, r.Key, r.Bids) })
}

// highest keeps the records with the highest value, all that tie.
func highest[K comparable, T any](value func(*T) int64) window.Functions[K, T, []T, []T] {
	add := func(best *[]T, in *T) {
		switch {
		case len(*best) == 0 || value(in) == value(&(*best)[0]):
			*best = append(*best, *in)
		case value(in) > value(&(*best)[0]):
			*best = append((*best)[:0], *in)
		}
	}
	return window.Functions[K, T, []T, []T]{
		AddTo: add,
		MergeOf: func(into, from *[]T) {
			for i := range *from {
				add(into, &(*from)[i])
			}
		},
		ResultOf: func(_ window.Pane[K], best *[]T) []T { return *best },
	}
}

func emitAll[K comparable, T any](_ window.Pane[K], rows *[]T, out *operator.Collector[T]) {
	for _, r := range *rows {
		out.Emit(r)
	}
}

// highBid is of a bid what a row of q7 needs.
type highBid struct {
	Auction, Bidder, Price, DateTime int64
	Extra                            string
}

// windowBid is a bid with its window.
type windowBid struct {
	Start, End int64
	Bid        highBid
}

// q7: the bids with the highest price in windows of 10 s.
func q7(j *builder) {
	top := j.events().Filter("bids", isBid).
		MapInto("bid", func(e *nexmark.Event, b *highBid) {
			*b = highBid{e.Bid.Auction, e.Bid.Bidder, e.Bid.Price, e.Bid.DateTime, e.Bid.Extra}
		}).
		WindowAll("highest", window.Tumbling(windowSize)).
		AggregateThen(highest[window.All](func(b *highBid) int64 { return b.Price }),
			func(p window.Pane[window.All], best *[]highBid, out *operator.Collector[windowBid]) {
				for _, b := range *best {
					out.Emit(windowBid{p.Start, p.End, b})
				}
			})
	sink(j, top, func(dst []byte, r *windowBid) []byte {
		b := &r.Bid
		return texts(comma(ints(dst, r.Start, r.End, b.Auction, b.Bidder, b.Price, b.DateTime)), b.Extra)
	})
}

// arrival is a person, or an auction of one.
type arrival struct {
	Person  int64
	Name    string // Of the person.
	Auction bool
}

// newcomer is what q8 knows of a person in a window.
type newcomer struct {
	Name        string
	Came, Sells bool
}

// newSeller is a row of q8.
type newSeller struct {
	Person     int64
	Name       string
	Start, End int64
}

// q8: who came and opened an auction in the same 10 s.
func q8(j *builder) {
	sellers := j.events().FlatMap("arrivals", func(e *nexmark.Event, out *operator.Collector[arrival]) {
		if p := e.Person; p != nil {
			out.Emit(arrival{Person: p.ID, Name: p.Name})
		} else if a := e.Auction; a != nil {
			out.Emit(arrival{Person: a.Seller, Auction: true})
		}
	}).
		KeyBy(func(a *arrival) int64 { return a.Person }).
		Window("newcomers", window.Tumbling(windowSize)).
		AggregateThen(window.Functions[int64, arrival, newcomer, newcomer]{
			AddTo: func(n *newcomer, a *arrival) {
				if a.Auction {
					n.Sells = true
				} else {
					n.Name, n.Came = a.Name, true
				}
			},
			MergeOf: func(into, from *newcomer) {
				if from.Came {
					into.Name, into.Came = from.Name, true
				}
				into.Sells = into.Sells || from.Sells
			},
			ResultOf: func(_ window.Pane[int64], n *newcomer) newcomer { return *n },
		}, func(p window.Pane[int64], n *newcomer, out *operator.Collector[newSeller]) {
			if n.Came && n.Sells {
				out.Emit(newSeller{p.Key, n.Name, p.Start, p.End})
			}
		})
	sink(j, sellers, func(dst []byte, r *newSeller) []byte {
		return ints(comma(texts(comma(ints(dst, r.Person)), r.Name)), r.Start, r.End)
	})
}

// q11: how many bids each bidder makes before a pause of 10 s.
func q11(j *builder) {
	counts := bidders(j).KeyBy(itself).SessionWindow("count", window.Session(windowSize)).Aggregate(count)
	sink(j, counts, countRow)
}

// q12: the bids of each bidder in windows of 10 s.
func q12(j *builder) {
	counts := bidders(j).KeyBy(itself).Window("count", window.Tumbling(windowSize)).Aggregate(count)
	sink(j, counts, countRow)
}
