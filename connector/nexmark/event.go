package nexmark

import "strconv"

// Person is someone who sells and bids.
type Person struct {
	ID         int64
	Name       string
	Email      string
	CreditCard string
	City       string
	State      string
	DateTime   int64 // Milliseconds since 1970 UTC.
	Extra      string
}

// Auction is the sale of one item.
type Auction struct {
	ID          int64
	ItemName    string
	Description string
	InitialBid  int64
	Reserve     int64
	DateTime    int64 // Milliseconds since 1970 UTC.
	Expires     int64 // The last millisecond in which bids count.
	Seller      int64 // A person's ID.
	Category    int64
	Extra       string
}

// Bid is an offer for an auction's item.
type Bid struct {
	Auction  int64
	Bidder   int64 // A person's ID.
	Price    int64
	Channel  string
	URL      string
	DateTime int64 // Milliseconds since 1970 UTC.
	Extra    string
}

// Event is a person, an auction or a bid. Of 50 events 46 are bids, which is why they lie in the event itself: they
// cost no allocation.
type Event struct {
	Person  *Person  // Not nil for a person.
	Auction *Auction // Not nil for an auction.
	Bid     Bid      // Zero for the others.
}

// IsBid tells whether e is a bid.
func (e *Event) IsBid() bool { return e.Person == nil && e.Auction == nil }

// Time is the event time in milliseconds since 1970 UTC.
func (e *Event) Time() int64 {
	switch {
	case e.Person != nil:
		return e.Person.DateTime
	case e.Auction != nil:
		return e.Auction.DateTime
	default:
		return e.Bid.DateTime
	}
}

// AppendJSON appends the event's JSON form, without a line break.
func (e *Event) AppendJSON(dst []byte) []byte {
	switch {
	case e.Person != nil:
		return e.Person.appendJSON(dst)
	case e.Auction != nil:
		return e.Auction.appendJSON(dst)
	default:
		return e.Bid.appendJSON(dst)
	}
}

func (p *Person) appendJSON(dst []byte) []byte {
	dst = appendInt(dst, `{"type":"person","id":`, p.ID)
	dst = appendText(dst, `,"name":"`, p.Name)
	dst = appendText(dst, `,"email":"`, p.Email)
	dst = appendText(dst, `,"creditCard":"`, p.CreditCard)
	dst = appendText(dst, `,"city":"`, p.City)
	dst = appendText(dst, `,"state":"`, p.State)
	dst = appendInt(dst, `,"dateTime":`, p.DateTime)
	return append(appendText(dst, `,"extra":"`, p.Extra), '}')
}

func (a *Auction) appendJSON(dst []byte) []byte {
	dst = appendInt(dst, `{"type":"auction","id":`, a.ID)
	dst = appendText(dst, `,"itemName":"`, a.ItemName)
	dst = appendText(dst, `,"description":"`, a.Description)
	dst = appendInt(dst, `,"initialBid":`, a.InitialBid)
	dst = appendInt(dst, `,"reserve":`, a.Reserve)
	dst = appendInt(dst, `,"dateTime":`, a.DateTime)
	dst = appendInt(dst, `,"expires":`, a.Expires)
	dst = appendInt(dst, `,"seller":`, a.Seller)
	dst = appendInt(dst, `,"category":`, a.Category)
	return append(appendText(dst, `,"extra":"`, a.Extra), '}')
}

func (b *Bid) appendJSON(dst []byte) []byte {
	dst = appendInt(dst, `{"type":"bid","auction":`, b.Auction)
	dst = appendInt(dst, `,"bidder":`, b.Bidder)
	dst = appendInt(dst, `,"price":`, b.Price)
	dst = appendText(dst, `,"channel":"`, b.Channel)
	dst = appendText(dst, `,"url":"`, b.URL)
	dst = appendInt(dst, `,"dateTime":`, b.DateTime)
	return append(appendText(dst, `,"extra":"`, b.Extra), '}')
}

func appendInt(dst []byte, name string, v int64) []byte {
	return strconv.AppendInt(append(dst, name...), v, 10)
}

// appendText appends a string; no text of the benchmark needs escaping.
func appendText(dst []byte, name, v string) []byte {
	return append(append(append(dst, name...), v...), '"')
}
