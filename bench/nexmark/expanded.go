package nexmark

import (
	"github.com/cairnstream/cairn/connector/nexmark"
	"github.com/cairnstream/cairn/operator"
)

// lotEvent is an auction or a bid, whichever came, under the auction's id.
type lotEvent struct {
	ID      int64
	IsBid   bool
	Bid     nexmark.Bid
	Auction *nexmark.Auction // Nil for one of another category.
}

// expandedBid is a bid with its auction.
type expandedBid struct {
	Bid     nexmark.Bid
	Auction *nexmark.Auction
}

// lot is what q20 knows of an auction. Of one of another category it is that it has come.
type lot struct {
	Known   bool
	Auction *nexmark.Auction
}

// q20: bids with their auctions, of one category. An auction may come after its bids.
func q20(j *builder) {
	bids := j.events().FlatMap("lots", func(e *nexmark.Event, out *operator.Collector[lotEvent]) {
		switch {
		case e.IsBid():
			out.Emit(lotEvent{ID: e.Bid.Auction, IsBid: true, Bid: e.Bid})
		case e.Auction != nil && e.Auction.Category == category:
			out.Emit(lotEvent{ID: e.Auction.ID, Auction: e.Auction})
		case e.Auction != nil:
			out.Emit(lotEvent{ID: e.Auction.ID})
		}
	}).
		KeyBy(func(e *lotEvent) int64 { return e.ID }).
		Process("join", func(s *operator.States[int64]) operator.Handler[int64, lotEvent, expandedBid] {
			lots, waiting := s.Value[lot]("auction"), s.List[nexmark.Bid]("waiting bids")
			return operator.Handler[int64, lotEvent, expandedBid]{Record: func(c *operator.KeyedContext[int64, expandedBid], in *lotEvent) {
				if !in.IsBid {
					lots.Set(lot{true, in.Auction})
					if n := waiting.Len(); n > 0 {
						if in.Auction != nil {
							for i := range n {
								c.Emit(expandedBid{*waiting.At(i), in.Auction})
							}
						}
						waiting.Clear()
					}
					return
				}
				switch l, _ := lots.Get(); {
				case !l.Known:
					waiting.Append(&in.Bid)
				case l.Auction != nil:
					c.Emit(expandedBid{in.Bid, l.Auction})
				}
			}}
		})
	sink(j, bids, func(dst []byte, r *expandedBid) []byte {
		return itemFields(comma(bidFields(dst, &r.Bid)), r.Auction)
	})
}
