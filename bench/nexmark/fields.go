package nexmark

import (
	"strconv"

	"github.com/cairnstream/cairn/connector/nexmark"
)

// Rows are lines of fields with commas between.

func ints(dst []byte, vs ...int64) []byte {
	for i, v := range vs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, v, 10)
	}
	return dst
}

func texts(dst []byte, vs ...string) []byte {
	for i, v := range vs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, v...)
	}
	return dst
}

func comma(dst []byte) []byte { return append(dst, ',') }

// bidFields are all 7 fields of a bid.
func bidFields(dst []byte, b *nexmark.Bid) []byte {
	dst = comma(ints(dst, b.Auction, b.Bidder, b.Price))
	dst = comma(texts(dst, b.Channel, b.URL))
	return texts(comma(ints(dst, b.DateTime)), b.Extra)
}

// itemFields are the fields of an auction from itemName on.
func itemFields(dst []byte, a *nexmark.Auction) []byte {
	dst = comma(texts(dst, a.ItemName, a.Description))
	dst = comma(ints(dst, a.InitialBid, a.Reserve, a.DateTime, a.Expires, a.Seller, a.Category))
	return texts(dst, a.Extra)
}
