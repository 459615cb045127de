package nexmark

import "encoding/binary"

const (
	firstID       = 1000
	firstCategory = 10

	// Of each group of 50 events the first is a person, the next 3 are auctions, the others are bids.
	groupSize = 50
	firstBid  = 4
)

// Generator makes events. One goroutine uses it; others have their own.
type Generator struct {
	clock
	span uint64 // Auctions are open for 1 to span milliseconds.

	// What the next persons and auctions are taken from; there is one allocation for dozens of them.
	persons  []Person
	auctions []Auction

	text  []byte // Scratch: the texts of one call of Fill, one behind the other.
	texts []textRef
}

// textRef is a person or auction whose strings are in text[from:to], the first of them up to first.
type textRef struct {
	person          *Person
	auction         *Auction
	from, first, to int
}

// Persons and auctions of one allocation: nearly 4 KiB each.
const (
	personSlab  = 36
	auctionSlab = 39
)

// Longest texts of a person and of an auction, with what a copy of a whole word may reach beyond them.
const (
	personText  = 64
	auctionText = 160
)

// NewGenerator makes a generator of the events of c.
func NewGenerator(c Config) *Generator {
	c = c.WithDefaults()
	return &Generator{clock: newClock(c), span: 2 * uint64(max(1, 5_000_000/(3*c.Rate)))}
}

// clock makes the draws and the event times of a run.
type clock struct {
	start  uint64
	rate   int64
	base   int64
	jitter int64
}

func newClock(c Config) clock {
	return clock{start: Mix(c.Seed + gamma), rate: c.Rate, base: c.Base, jitter: c.Jitter}
}

// state is what Mix makes draw 0 of event n of; each further draw is gamma on.
func (c *clock) state(n int64) uint64 { return c.start + gamma*(16*uint64(n)+1) }

// watermark is the one that follows event n.
func (c *clock) watermark(n int64) int64 { return c.base + n*1000/c.rate - c.jitter - 1 }

// times fills in the event times of the events from first on.
func (c *clock) times(first int64, times []int64) {
	t, rest := c.base+first*1000/c.rate, first*1000%c.rate
	step, over := 1000/c.rate, 1000%c.rate
	for i := range times {
		times[i] = t
		t += step
		if rest += over; rest >= c.rate {
			rest -= c.rate
			t++
		}
	}
	if c.jitter == 0 {
		return
	}
	z := c.state(first) + 15*gamma&(1<<64-1)
	for i := range times {
		times[i] = max(c.base, times[i]-int64(hi(Mix(z), uint64(c.jitter)+1)))
		z += gamma16
	}
}

// group is what the events of a group have in common.
type group struct {
	number int64
	// Of the persons and auctions that are referred to: the hot one, and the others as a first one and a number.
	hotPerson, person   int64
	hotAuction, auction int64
	persons, auctions   uint64
}

func groupOf(number int64) group {
	active := min(number+1, 1000)
	last := 3*number + 2
	first := max(last-100, 0)
	return group{
		number:    number,
		hotPerson: firstID + number/100*100, person: firstID + number + 1 - active, persons: uint64(active + 10),
		hotAuction: firstID + last/100*100, auction: firstID + first, auctions: uint64(last - first + 11),
	}
}

// Fill makes the events from number first on, with their times. rows and times are of one length. What rows hold
// before does not matter.
func (g *Generator) Fill(first int64, rows []Event, times []int64) {
	g.times(first, times)
	groups := len(rows)/groupSize + 2
	if need := groups * (personText + 3*auctionText); len(g.text) < need {
		g.text = make([]byte, need)
	}
	g.texts = g.texts[:0]
	used := 0
	at := group{number: first / groupSize}
	offset := int(first % groupSize)
	for n := first; len(rows) > 0; at.number++ {
		at = groupOf(at.number)
		for offset < firstBid && len(rows) > 0 {
			rows[0] = Event{}
			if offset == 0 {
				rows[0].Person, used = g.makePerson(n, &at, times[0], used)
			} else {
				rows[0].Auction, used = g.makeAuction(n, &at, offset, times[0], used)
			}
			rows, times = rows[1:], times[1:]
			n++
			offset++
		}
		bids := min(groupSize-offset, len(rows))
		if bids > 0 {
			g.makeBids(n, &at, rows[:bids], times[:bids])
		}
		rows, times = rows[bids:], times[bids:]
		n += int64(bids)
		offset = 0
	}
	g.setTexts()
}

// setTexts makes strings of the texts: one of each person and auction, with all of theirs. Who keeps one of them keeps
// no others.
func (g *Generator) setTexts() {
	for i := range g.texts {
		t := &g.texts[i]
		s := string(g.text[t.from:t.to])
		first := t.first - t.from
		if p := t.person; p != nil {
			p.Name = s[:first]
			p.Email = s[first : first+emailSize]
			p.CreditCard = s[first+emailSize:]
		} else {
			t.auction.ItemName = s[:first]
			t.auction.Description = s[first:]
		}
	}
	clear(g.texts) // They keep nothing alive.
}

// makeBids makes the bids of a group field by field: so each loop keeps all that it needs in registers. Choices that
// are as good as random are made without branches, which nothing could predict.
func (g *Generator) makeBids(n int64, at *group, rows []Event, times []int64) {
	z := g.state(n)
	z0 := z
	first, count, hot := at.auction, at.auctions, at.hotAuction
	for i := range rows {
		x := Mix(z0)
		v := first + int64(lo(x, count))
		if int64(x) < 0 { // 1 of 2.
			v = hot
		}
		rows[i].Bid.Auction = v
		z0 += gamma16
	}
	z1 := z + gamma
	first, count, hot = at.person, at.persons, at.hotPerson+1
	for i := range rows {
		x := Mix(z1)
		v := first + int64(lo(x, count))
		if x>>62 != 0 { // 3 of 4.
			v = hot
		}
		rows[i].Bid.Bidder = v
		z1 += gamma16
	}
	z2 := z + gamma2
	times = times[:len(rows)]
	for i := range rows {
		b := &rows[i].Bid
		b.Price = price(Mix(z2))
		b.DateTime = times[i]
		z2 += gamma16
	}
	z3 := z + gamma3
	for i := range rows {
		x := Mix(z3)
		cold := 4 + lo(x, coldChannels)
		isHot := uint64(int64(x) >> 63) // All ones for 1 of 2.
		b := &rows[i].Bid
		b.Channel, b.URL = channel(cold ^ (cold^lo(x, 4))&isHot)
		z3 += gamma16
	}
	z4 := z + gamma4
	for i := range rows {
		e := &rows[i]
		e.Person, e.Auction, e.Bid.Extra = nil, nil, bidExtras[Mix(z4)>>58]
		z4 += gamma16
	}
}

// seller is the person that draw x means.
func (at *group) seller(x uint64) int64 {
	if x>>62 != 0 {
		return at.hotPerson
	}
	return at.person + int64(lo(x, at.persons))
}

const (
	emailSize = 7 + 1 + 5 + 8
	cardSize  = 4*4 + 3
)

func (g *Generator) makePerson(n int64, at *group, time int64, used int) (*Person, int) {
	if len(g.persons) == 0 {
		g.persons = make([]Person, personSlab)
	}
	p := &g.persons[0]
	g.persons = g.persons[1:]

	z := g.state(n)
	names, mail, card, place, pad := Mix(z), Mix(z+gamma), Mix(z+gamma2), Mix(z+gamma3), Mix(z+gamma4)
	p.ID = firstID + at.number
	p.City = cities[hi(place, uint64(len(cities)))]
	p.State = states[lo(place, uint64(len(states)))]
	p.DateTime = time
	p.Extra = personExtras[pad>>58]

	b := g.text[used : used+personText]
	w := &firstWords[hi(names, 16)]
	copy(b[:wordWidth], w.text[:])
	end := w.n + 1
	w = &lastWords[lo(names, 16)]
	copy(b[end:end+wordWidth], w.text[:])
	end += w.n
	ref := textRef{person: p, from: used, first: used + end}

	b = b[end:]
	binary.LittleEndian.PutUint64(b, letters8(mail))
	binary.LittleEndian.PutUint64(b[8:], letters8(mail>>28))
	b[7] = '@'
	copy(b[13:21], ".example")

	b = b[emailSize:]
	first, second := hi(card, 1e8), lo(card, 1e8)
	putDigits(b, first/1e4)
	putDigits(b[5:], first%1e4)
	putDigits(b[10:], second/1e4)
	putDigits(b[15:], second%1e4)
	b[4], b[9], b[14] = ' ', ' ', ' '

	ref.to = ref.first + emailSize + cardSize
	g.texts = append(g.texts, ref)
	return p, ref.to
}

// putDigits writes v as 4 digits.
func putDigits(b []byte, v uint64) {
	_ = b[3]
	b[0] = byte('0' + v/1000)
	b[1] = byte('0' + v/100%10)
	b[2] = byte('0' + v/10%10)
	b[3] = byte('0' + v%10)
}

func (g *Generator) makeAuction(n int64, at *group, offset int, time int64, used int) (*Auction, int) {
	if len(g.auctions) == 0 {
		g.auctions = make([]Auction, auctionSlab)
	}
	a := &g.auctions[0]
	g.auctions = g.auctions[1:]

	z := g.state(n)
	item, text, kind := Mix(z), Mix(z+gamma), Mix(z+gamma6)
	a.ID = firstID + 3*at.number + int64(offset) - 1
	a.InitialBid = price(Mix(z + gamma2))
	a.Reserve = a.InitialBid + price(Mix(z+gamma3))
	a.DateTime = time
	a.Expires = time + 1 + int64(hi(Mix(z+gamma4), g.span))
	a.Seller = at.seller(Mix(z + gamma5))
	a.Category = firstCategory + int64(hi(kind, 5))
	a.Extra = auctionExtras[lo(kind, extras)]

	b := g.text[used : used+auctionText]
	w := &words[hi(item, 32)]
	copy(b[:wordWidth], w.text[:])
	end := w.n + 1
	w = &words[lo(item, 32)]
	copy(b[end:end+wordWidth], w.text[:])
	end += w.n
	ref := textRef{auction: a, from: used, first: used + end}
	for range 12 {
		w = &words[text&31]
		copy(b[end:end+wordWidth], w.text[:])
		end += w.n + 1
		text >>= 5
	}
	ref.to = used + end - 1 // Without the last blank.
	g.texts = append(g.texts, ref)
	return a, ref.to
}
