package nexmark

import (
	"encoding/binary"
	"strconv"
	"strings"
)

var (
	firstNames = strings.Fields("Ada Bela Chen Dara Emil Fay Goro Hana Igor Jana Kofi Lena Milo Nora Omar Petra")
	lastNames  = strings.Fields("Abbot Berg Costa Diaz Eklund Fuchs Gupta Horn Ito Jensen Kovac Lang Moreau Novak Okoye Price")
	cities     = []string{"Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"}
	states     = strings.Fields("AZ CA ID OR WA WY")
	wordList   = strings.Fields(`amber brass cedar denim ebony flint glass hazel ivory jade kettle lamp mirror nickel oak piano
		quilt radio silver table umber violin wagon xylophone yarn zinc basket clock drawer easel frame globe`)
	hotChannels = strings.Fields("Apple Baidu Facebook Google")
)

const (
	coldChannels = 10_000
	extras       = 64 // Rows of each table of extras.
)

// The channel table is one text, in which each row takes channelWidth bytes: the channel at the front, the url from
// urlAt on. As a table of strings it would be 20,000 pointers for each garbage collection to follow, and take most of a
// second-level cache.
const (
	channelWidth = 64
	urlAt        = 16
)

// channelSize has the lengths of a row's channel and url.
type channelSize struct{ channel, url uint8 }

var (
	channelText, channelSizes = channelTable()

	personExtras  = extraTable(2, 90, 64)
	auctionExtras = extraTable(3, 256, 160)
	bidExtras     = extraTable(4, 8, 32)
)

// tableLetters makes n letters for a row of one of the tables.
func tableLetters(table, row uint64, n int) string {
	var b []byte
	for block := uint64(0); len(b) < n; block++ {
		x := Mix(table<<40 + row<<8 + block)
		b = binary.LittleEndian.AppendUint64(b, letters8(x))
		b = binary.LittleEndian.AppendUint64(b, letters8(x>>32))
	}
	return string(b[:n])
}

func channelTable() (string, *[4 + coldChannels]channelSize) {
	sizes := new([4 + coldChannels]channelSize)
	text := make([]byte, channelWidth*len(sizes))
	for r := range sizes {
		name := "channel-" + strconv.Itoa(r-len(hotChannels))
		if r < len(hotChannels) {
			name = hotChannels[r]
		}
		path := tableLetters(1, uint64(r), 10)
		url := "https://" + path[:5] + ".example/" + path[5:] + "/" + strconv.Itoa(r)
		row := text[channelWidth*r:]
		sizes[r] = channelSize{uint8(copy(row[:urlAt], name)), uint8(copy(row[urlAt:channelWidth], url))}
	}
	return string(text), sizes
}

// channel is row r of the channel table, and its url.
func channel(r uint64) (name, url string) {
	n := &channelSizes[r]
	row := channelText[channelWidth*r : channelWidth*r+channelWidth]
	return row[:n.channel], row[urlAt : urlAt+uint64(n.url)]
}

// extraTable makes paddings of shortest to shortest+spread-1 letters.
func extraTable(table uint64, shortest, spread int) (t [extras]string) {
	for r := range t {
		t[r] = tableLetters(table, uint64(r), shortest+r*spread/extras)
	}
	return t
}

// A word has a blank behind it and is padded to the width, so that it is copied in one piece.
const wordWidth = 16

type word struct {
	text [wordWidth]byte
	n    int // Length without the blank.
}

func padded(s string) (w word) {
	w.n = copy(w.text[:], s+" ") - 1
	return w
}

var (
	words      = pad32(wordList)
	firstWords = pad16(firstNames)
	lastWords  = pad16(lastNames)
)

func pad32(list []string) (t [32]word) {
	for i := range t {
		t[i] = padded(list[i])
	}
	return t
}

func pad16(list []string) (t [16]word) {
	for i := range t {
		t[i] = padded(list[i])
	}
	return t
}
