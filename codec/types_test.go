package codec

import "time"

// The types that the tests encode.

type status uint8

type customerID string

// tick is 24 bytes and dense.
type tick struct {
	At    int64
	ID    uint64
	Price float64
}

// quote is 80 bytes with a bool and padding.
type quote struct {
	At       int64
	ID       uint64
	Bid, Ask float64
	Sizes    [4]int32
	Venue    uint16
	Open     bool
	Level    int8
	Seq      uint32
	Sum      [2]float64
	Last     int64
}

type line struct {
	SKU      string
	Quantity int32
	Price    float64
}

type order struct {
	ID       int64
	Customer customerID
	Note     string
	At       time.Time
	Lines    []line
}

type inner struct {
	A uint8
	B string
}

type embedded struct{ Depth int16 }

// everything has a field of each kind.
type everything struct {
	embedded
	Bool     bool
	Int      int
	Int8     int8
	Int16    int16
	Int32    int32
	Int64    int64
	Uint     uint
	Uint8    uint8
	Uint16   uint16
	Uint32   uint32
	Uint64   uint64
	Float32  float32
	Float64  float64
	Complex  complex64
	Wide     complex128
	String   string
	Bytes    []byte
	Time     time.Time
	Duration time.Duration
	Status   status
	Customer customerID
	Inner    inner
	Array    [3]int16
	Flags    [2]bool
	Inners   [2]inner
	Numbers  []int64
	Strings  []string
	Structs  []inner
	Marks    []bool
	Pointer  *inner
	Deep     **int32
	Counts   map[string]int64
	Places   map[[2]int16]inner
	Set      map[customerID]struct{}
	Nested   map[string]map[int32][]string
	Renamed  int32  `cairn:"renamed,alias=old,alias=older"`
	Skipped  func() `cairn:"-"`
	_        [3]byte
	Last     uint8
}

func everythingSample() everything {
	deep := int32(-5)
	p := &deep
	return everything{
		embedded: embedded{Depth: -2},
		Bool:     true, Int: -1, Int8: -8, Int16: -16, Int32: -32, Int64: -64,
		Uint: 1, Uint8: 8, Uint16: 16, Uint32: 32, Uint64: 64,
		Float32: 1.5, Float64: -2.25, Complex: complex(1, -1), Wide: complex(0.5, 2),
		String: "naïve", Bytes: []byte{0, 255}, Time: time.Unix(1700000000, 123456789).UTC(), Duration: time.Second,
		Status: 3, Customer: "c-1", Inner: inner{1, "x"}, Array: [3]int16{1, -2, 3}, Flags: [2]bool{false, true},
		Inners: [2]inner{{2, "y"}, {3, ""}}, Numbers: []int64{1, -1}, Strings: []string{"", "s"},
		Structs: []inner{{4, "z"}}, Marks: []bool{true, false, true}, Pointer: &inner{5, "p"}, Deep: &p,
		Counts: map[string]int64{"b": 2, "a": 1, "": 0}, Places: map[[2]int16]inner{{1, 2}: {6, "q"}},
		Set: map[customerID]struct{}{"m": {}, "k": {}}, Nested: map[string]map[int32][]string{"n": {1: {"o"}, 0: nil}, "e": {}},
		Renamed: 7, Last: 9,
	}
}
