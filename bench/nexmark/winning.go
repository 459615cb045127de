package nexmark

import (
	"github.com/cairnstream/cairn/connector/nexmark"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/stream"
)

// An auction is won by the highest of the bids that come while it is open. What there is of it in state:
//
//   - its standing, from when it comes until a while after it has closed: bids that come too late find it closed;
//   - bids that came before it. They can be valid only until the watermark has passed them: then every auction that was
//     open at their time has come.
const (
	rememberMs = 1000 // For how long a closed auction is remembered.
	waitMs     = 1000 // Timers for bids that wait are rounded up to a multiple, so that one serves many.
)

func roundUp(ms int64) int64 { return (ms/waitMs + 1) * waitMs }

// priceEvent is of an auction or a bid what its winning price depends on.
type priceEvent struct {
	Auction  int64
	Time     int64
	Price    int64 // 0 for an auction, which has the other two fields.
	Expires  int64
	Category int64
}

// priceStanding is how an auction stands.
type priceStanding struct{ Opens, Expires, Category, Best int64 }

func (s *priceStanding) offer(time, price int64) {
	if s.Opens <= time && time <= s.Expires {
		s.Best = max(s.Best, price)
	}
}

// closing is an auction that was won.
type closing struct{ Category, Price int64 }

// categoryMean is the running mean of the closing prices of a category.
type categoryMean struct{ Category, Auctions, Sum int64 }

// q4: the mean closing price of each category, with each auction that closes.
func q4(j *builder) {
	means := closings(j).
		KeyBy(func(c *closing) int64 { return c.Category }).
		Process("mean", func(s *operator.States[int64]) operator.Handler[int64, closing, categoryMean] {
			mean := s.Value[categoryMean]("mean")
			return operator.Handler[int64, closing, categoryMean]{Record: func(c *operator.KeyedContext[int64, categoryMean], in *closing) {
				m := mean.Ref()
				m.Category = in.Category
				m.Auctions++
				m.Sum += in.Price
				c.Emit(*m)
			}}
		})
	sink(j, means, func(dst []byte, m *categoryMean) []byte { return ints(dst, m.Category, m.Auctions, m.Sum/m.Auctions) })
}

func closings(j *builder) stream.Stream[closing] {
	return j.events().FlatMap("prices", func(e *nexmark.Event, out *operator.Collector[priceEvent]) {
		if a := e.Auction; a != nil {
			out.Emit(priceEvent{Auction: a.ID, Time: a.DateTime, Expires: a.Expires, Category: a.Category})
		} else if e.IsBid() {
			out.Emit(priceEvent{Auction: e.Bid.Auction, Time: e.Bid.DateTime, Price: e.Bid.Price})
		}
	}).
		KeyBy(func(e *priceEvent) int64 { return e.Auction }).
		Process("closing price", func(s *operator.States[int64]) operator.Handler[int64, priceEvent, closing] {
			standings, waiting := s.Value[priceStanding]("standing"), s.List[priceEvent]("waiting bids")
			return operator.Handler[int64, priceEvent, closing]{
				Record: func(c *operator.KeyedContext[int64, closing], in *priceEvent) {
					if in.Price == 0 {
						st := priceStanding{Opens: in.Time, Expires: in.Expires, Category: in.Category}
						if n := waiting.Len(); n > 0 {
							for i := range n {
								e := waiting.At(i)
								st.offer(e.Time, e.Price)
							}
							waiting.Clear()
						}
						standings.Set(st)
						c.SetTimer(st.Expires)
						return
					}
					if st, ok := standings.Get(); ok {
						if before := st.Best; st.Best >= 0 {
							if st.offer(in.Time, in.Price); st.Best != before {
								standings.Set(st)
							}
						}
					} else if in.Time > c.Watermark() && waiting.Append(in) {
						c.SetTimer(roundUp(in.Time))
					}
				},
				Timer: func(c *operator.KeyedContext[int64, closing]) {
					switch st, ok := standings.Get(); {
					case !ok:
						latest := record.MinTime
						for _, e := range waiting.All() {
							latest = max(latest, e.Time)
						}
						if latest > c.Watermark() {
							c.SetTimer(roundUp(latest))
						} else {
							waiting.Clear()
						}
					case st.Best < 0:
						if c.Time() >= st.Expires+rememberMs {
							standings.Clear()
						}
					case c.Time() >= st.Expires:
						if st.Best > 0 {
							c.Emit(closing{st.Category, st.Best})
						}
						st.Best = -1 // Closed.
						standings.Set(st)
						c.SetTimer(st.Expires + rememberMs)
					}
				},
			}
		})
}

// offer is of a bid what a row of q9 needs, and what decides between equal prices.
type offer struct {
	Bidder, Price, Time int64
	Channel, Extra      string
}

// beats tells whether o wins over p.
func (o *offer) beats(p *offer) bool {
	switch {
	case o.Price != p.Price:
		return o.Price > p.Price
	case o.Time != p.Time:
		return o.Time < p.Time
	case o.Bidder != p.Bidder:
		return o.Bidder < p.Bidder
	case o.Channel != p.Channel:
		return o.Channel < p.Channel
	default:
		return o.Extra < p.Extra
	}
}

// offerEvent is an auction or a bid, whichever came, under the auction's id.
type offerEvent struct {
	ID      int64
	Auction *nexmark.Auction // Or nil for a bid.
	Offer   offer
}

// standing is how an auction stands. Once it is closed, when it expired is all that is left of it.
type standing struct {
	Closed  bool
	Auction nexmark.Auction
	Best    offer // Of price 0 before there is one.
}

// wins tells whether o is the best so far.
func (s *standing) wins(o *offer) bool {
	return !s.Closed && s.Auction.DateTime <= o.Time && o.Time <= s.Auction.Expires && o.beats(&s.Best)
}

func (s *standing) offer(o *offer) {
	if s.wins(o) {
		s.Best = *o
	}
}

// wonAuction is an auction with its winning bid.
type wonAuction struct {
	Auction nexmark.Auction
	Bid     offer
}

// q9: each auction with the bid that wins it.
func q9(j *builder) {
	won := j.events().FlatMap("offers", func(e *nexmark.Event, out *operator.Collector[offerEvent]) {
		if a := e.Auction; a != nil {
			out.Emit(offerEvent{ID: a.ID, Auction: a})
		} else if e.IsBid() {
			b := &e.Bid
			out.Emit(offerEvent{ID: b.Auction, Offer: offer{b.Bidder, b.Price, b.DateTime, b.Channel, b.Extra}})
		}
	}).
		KeyBy(func(e *offerEvent) int64 { return e.ID }).
		Process("winning bid", func(s *operator.States[int64]) operator.Handler[int64, offerEvent, wonAuction] {
			standings, waiting := s.Value[standing]("standing"), s.List[offer]("waiting bids")
			return operator.Handler[int64, offerEvent, wonAuction]{
				Record: func(c *operator.KeyedContext[int64, wonAuction], in *offerEvent) {
					if a := in.Auction; a != nil {
						st := standing{Auction: *a}
						if n := waiting.Len(); n > 0 {
							for i := range n {
								st.offer(waiting.At(i))
							}
							waiting.Clear()
						}
						standings.Set(st)
						c.SetTimer(a.Expires)
						return
					}
					if st := standings.Peek(); st != nil {
						if st.wins(&in.Offer) {
							standings.Ref().Best = in.Offer
						}
					} else if in.Offer.Time > c.Watermark() && waiting.Append(&in.Offer) {
						c.SetTimer(roundUp(in.Offer.Time))
					}
				},
				Timer: func(c *operator.KeyedContext[int64, wonAuction]) {
					switch st := standings.Peek(); {
					case st == nil:
						latest := record.MinTime
						for _, o := range waiting.All() {
							latest = max(latest, o.Time)
						}
						if latest > c.Watermark() {
							c.SetTimer(roundUp(latest))
						} else {
							waiting.Clear()
						}
					case st.Closed:
						if c.Time() >= st.Auction.Expires+rememberMs {
							standings.Clear()
						}
					case c.Time() >= st.Auction.Expires:
						if st.Best.Price > 0 {
							c.Emit(wonAuction{st.Auction, st.Best})
						}
						expires := st.Auction.Expires
						*standings.Ref() = standing{Closed: true, Auction: nexmark.Auction{Expires: expires}}
						c.SetTimer(expires + rememberMs)
					}
				},
			}
		})
	sink(j, won, func(dst []byte, w *wonAuction) []byte {
		dst = itemFields(comma(ints(dst, w.Auction.ID)), &w.Auction)
		return texts(comma(ints(comma(dst), w.Bid.Bidder, w.Bid.Price, w.Bid.Time)), w.Bid.Extra)
	})
}
