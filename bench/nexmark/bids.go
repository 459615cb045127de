package nexmark

import (
	"github.com/cairnstream/cairn/connector/nexmark"
	"github.com/cairnstream/cairn/operator"
)

func isBid(e *nexmark.Event) bool { return e.IsBid() }

// events is no query, but checks the generator: every event.
func events(j *builder) {
	sink(j, j.events(), func(dst []byte, e *nexmark.Event) []byte { return e.AppendJSON(dst) })
}

// q0: every bid, unchanged.
func q0(j *builder) {
	sink(j, j.events().Filter("bids", isBid), bidRow)
}

func bidRow(dst []byte, e *nexmark.Event) []byte { return pricedRow(dst, &e.Bid) }

func pricedRow(dst []byte, b *nexmark.Bid) []byte {
	return texts(comma(ints(dst, b.Auction, b.Bidder, b.Price, b.DateTime)), b.Extra)
}

// q1: every bid, its price in another currency.
func q1(j *builder) {
	bids := j.events().Filter("bids", isBid).MapInto("convert", func(e *nexmark.Event, b *nexmark.Bid) {
		*b = e.Bid
		b.Price = b.Price * 908 / 1000
	})
	sink(j, bids, pricedRow)
}

// q2: the bids for some of the auctions.
func q2(j *builder) {
	some := j.events().Filter("some", func(e *nexmark.Event) bool { return e.IsBid() && e.Bid.Auction%123 == 0 })
	sink(j, some, func(dst []byte, e *nexmark.Event) []byte { return ints(dst, e.Bid.Auction, e.Bid.Price) })
}

// auctionBidder is who bids for what.
type auctionBidder struct{ Auction, Bidder int64 }

// q18: the last bid of each bidder for each auction.
func q18(j *builder) {
	last := j.events().Filter("bids", isBid).
		Map("bid", func(e *nexmark.Event) nexmark.Bid { return e.Bid }).
		KeyBy(func(b *nexmark.Bid) auctionBidder { return auctionBidder{b.Auction, b.Bidder} }).
		Process("last", func(s *operator.States[auctionBidder]) operator.Handler[auctionBidder, nexmark.Bid, nexmark.Bid] {
			state := s.Value[nexmark.Bid]("bid")
			return operator.Handler[auctionBidder, nexmark.Bid, nexmark.Bid]{
				Record: func(c *operator.KeyedContext[auctionBidder, nexmark.Bid], b *nexmark.Bid) {
					if last := state.Ref(); after(b, last) {
						*last = *b
						c.Emit(*b)
					}
				},
			}
		})
	sink(j, last, bidFields)
}

// after tells whether a is later than b; bids of one time are ordered by price, channel and extra. Every bid is later
// than the zero one.
func after(a, b *nexmark.Bid) bool {
	switch {
	case a.DateTime != b.DateTime:
		return a.DateTime > b.DateTime
	case a.Price != b.Price:
		return a.Price > b.Price
	case a.Channel != b.Channel:
		return a.Channel > b.Channel
	default:
		return a.Extra > b.Extra
	}
}
