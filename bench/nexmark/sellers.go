package nexmark

import (
	"github.com/cairnstream/cairn/connector/nexmark"
	"github.com/cairnstream/cairn/operator"
)

// category is that of the auctions which q3 and q20 are about.
const category = 10

// sale is a person or an auction of the category, whichever came, under the person's id.
type sale struct {
	Person            int64
	Name, City, State string // Of the person; empty where q3 does not ask for its state.
	Auction           int64  // Or 0 for a person.
}

// localItem is a row of q3.
type localItem struct {
	Name, City, State string
	Auction           int64
}

// seller is what q3 knows of a person.
type seller struct {
	Known             bool
	Name, City, State string
}

// q3: what people in some states sell in a category. A person may come after its auctions.
func q3(j *builder) {
	items := j.events().FlatMap("sales", func(e *nexmark.Event, out *operator.Collector[sale]) {
		switch {
		case e.Person != nil:
			p := e.Person
			if p.State == "OR" || p.State == "ID" || p.State == "CA" {
				out.Emit(sale{Person: p.ID, Name: p.Name, City: p.City, State: p.State})
			} else {
				out.Emit(sale{Person: p.ID})
			}
		case e.Auction != nil && e.Auction.Category == category:
			out.Emit(sale{Person: e.Auction.Seller, Auction: e.Auction.ID})
		}
	}).
		KeyBy(func(s *sale) int64 { return s.Person }).
		Process("join", func(s *operator.States[int64]) operator.Handler[int64, sale, localItem] {
			sellers, waiting := s.Value[seller]("seller"), s.List[int64]("waiting auctions")
			return operator.Handler[int64, sale, localItem]{Record: func(c *operator.KeyedContext[int64, localItem], in *sale) {
				if in.Auction == 0 {
					sellers.Set(seller{true, in.Name, in.City, in.State})
					if n := waiting.Len(); n > 0 {
						if in.State != "" {
							for i := range n {
								c.Emit(localItem{in.Name, in.City, in.State, *waiting.At(i)})
							}
						}
						waiting.Clear()
					}
					return
				}
				switch p, _ := sellers.Get(); {
				case !p.Known:
					waiting.Append(&in.Auction)
				case p.State != "":
					c.Emit(localItem{p.Name, p.City, p.State, in.Auction})
				}
			}}
		})
	sink(j, items, func(dst []byte, r *localItem) []byte {
		return ints(comma(texts(dst, r.Name, r.City, r.State)), r.Auction)
	})
}
