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

// count counts the bids of each window by key.
var count = window.Functions[int64, nexmark.Event, int64, windowCount]{
	AddTo:   func(bids *int64, _ *nexmark.Event) { *bids++ },
	MergeOf: func(into, from *int64) { *into += *from },
	ResultOf: func(p window.Pane[int64], bids *int64) windowCount {
		return windowCount{p.Key, *bids, p.Start, p.End}
	},
}

func countRow(dst []byte, r *windowCount) []byte { return ints(dst, r.Key, r.Bids, r.Start, r.End) }

// byBidder is the stream of bids by who made them.
func byBidder(j *builder) stream.Keyed[int64, nexmark.Event] {
	return j.events().Filter("bids", isBid).KeyBy(func(e *nexmark.Event) int64 { return e.Bid.Bidder })
}

// q5: the auctions with the most bids in windows of 10 s, every 2 s.
func q5(j *builder) {
	counts := j.events().Filter("bids", isBid).
		KeyBy(func(e *nexmark.Event) int64 { return e.Bid.Auction }).
		SlidingWindow("count", window.Sliding(windowSize, slide)).
		Aggregate(count)
	// The counts of a window have its end as their time, and no others are in the same 2 s.
	hottest := counts.
		KeyBy(func(c *windowCount) int64 { return c.Start }).
		Window("hottest", window.Tumbling(slide)).
		AggregateThen(highest[int64](bidsOf, func(c *windowCount) windowCount { return *c }, bidsOf), emitAll)
	sink(j, hottest, func(dst []byte, r *windowCount) []byte { return ints(dst, r.Start, r.End, r.Key, r.Bids) })
}

func bidsOf(c *windowCount) int64 { return c.Bids }

// highest keeps what keep makes of the records with the highest value, all that tie. kept is the value of what was made.
func highest[K comparable, T, B any](value func(*T) int64, keep func(*T) B, kept func(*B) int64) window.Functions[K, T, []B, []B] {
	return window.Functions[K, T, []B, []B]{
		AddTo: func(best *[]B, in *T) {
			v := value(in)
			switch {
			case len(*best) == 0 || v == kept(&(*best)[0]):
				*best = append(*best, keep(in))
			case v > kept(&(*best)[0]):
				*best = append((*best)[:0], keep(in))
			}
		},
		MergeOf: func(into, from *[]B) {
			switch {
			case len(*into) == 0 || len(*from) > 0 && kept(&(*from)[0]) > kept(&(*into)[0]):
				*into = *from
			case len(*from) > 0 && kept(&(*from)[0]) == kept(&(*into)[0]):
				*into = append(*into, *from...)
			}
		},
		ResultOf: func(_ window.Pane[K], best *[]B) []B { return *best },
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
		WindowAll("highest", window.Tumbling(windowSize)).
		AggregateThen(highest[window.All](
			func(e *nexmark.Event) int64 { return e.Bid.Price },
			func(e *nexmark.Event) highBid {
				return highBid{e.Bid.Auction, e.Bid.Bidder, e.Bid.Price, e.Bid.DateTime, e.Bid.Extra}
			},
			func(b *highBid) int64 { return b.Price }),
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
	counts := byBidder(j).SessionWindow("count", window.Session(windowSize)).Aggregate(count)
	sink(j, counts, countRow)
}

// q12: the bids of each bidder in windows of 10 s.
func q12(j *builder) {
	counts := byBidder(j).Window("count", window.Tumbling(windowSize)).Aggregate(count)
	sink(j, counts, countRow)
}
