package window

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/cairnstream/cairn/codec"
)

// What does not fit is refused when the job is built.
func TestValidate(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	for _, c := range []struct {
		w  interface{ Validate() error }
		ok bool
	}{
		{Tumbling(time.Second), true}, {Tumbling(0), false}, {Tumbling(-time.Second), false}, {Tumbling(time.Millisecond + 1), false},
		{Tumbling(time.Hour).Offset(-time.Minute), true}, {Tumbling(time.Hour).Offset(1), false},
		{Tumbling(24 * time.Hour).In(berlin), true}, {Tumbling(7 * 24 * time.Hour).In(berlin).Offset(4 * 24 * time.Hour), true},
		{Tumbling(time.Hour).In(berlin), false}, {Tumbling(24 * time.Hour).In(nil), false}, {Tumbling(24 * time.Hour).In(time.Local), false},
		{Sliding(10*time.Second, 2*time.Second), true}, {Sliding(10*time.Second, 3*time.Second), true}, {Sliding(time.Second, time.Minute), true},
		{Sliding(0, time.Second), false}, {Sliding(time.Second, 0), false}, {Sliding(time.Second, -1), false}, {Sliding(time.Second, 1), false},
		{Sliding(time.Second, time.Millisecond).Offset(1), false},
		{Session(time.Second), true}, {Session(0), false}, {Session(1), false}, {Global(), true},
		{AtEnd(), true}, {EveryCount(3), true}, {EveryCount(0), false}, {EveryInterval(time.Second), true}, {EveryInterval(0), false},
		{AtEnd().EarlyCount(-1), false}, {AtEnd().LateEvery(1), false}, {AtEnd().LateCount(2).Purging(), true},
	} {
		if err := c.w.Validate(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.w, err)
		}
	}
}

func zone(t testing.TB, name string) *time.Location {
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// Days begin when the calendar says so: 23 and 25 hours when clocks change, also at midnight, and a
// day that a place has left out.
func TestDays(t *testing.T) {
	for _, c := range []struct{ zone, at, start, hours string }{
		{"Europe/Berlin", "2024-03-31T10:00:00Z", "2024-03-30T23:00:00Z", "23h0m0s"},
		{"Europe/Berlin", "2024-10-27T00:30:00Z", "2024-10-26T22:00:00Z", "25h0m0s"},
		{"Europe/Berlin", "2024-10-27T01:30:00Z", "2024-10-26T22:00:00Z", "25h0m0s"},
		{"Europe/Berlin", "2024-07-01T21:59:59Z", "2024-06-30T22:00:00Z", "24h0m0s"},
		{"Europe/Berlin", "2024-07-01T22:00:00Z", "2024-07-01T22:00:00Z", "24h0m0s"},
		{"America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "23h0m0s"}, // No midnight: 00:00 became 01:00.
		{"America/Sao_Paulo", "2018-02-18T02:30:00Z", "2018-02-17T02:00:00Z", "25h0m0s"}, // 00:00 became 23:00.
		{"Pacific/Apia", "2011-12-31T00:00:00Z", "2011-12-30T10:00:00Z", "24h0m0s"},      // 30 December was left out,
		{"Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-29T10:00:00Z", "24h0m0s"},      // behind the 29th.
		{"Asia/Kathmandu", "2024-01-01T00:00:00Z", "2023-12-31T18:15:00Z", "24h0m0s"},
	} {
		at, _ := time.Parse(time.RFC3339, c.at)
		w := Tumbling(24 * time.Hour).In(zone(t, c.zone))
		if err := w.Validate(); err != nil {
			t.Fatal(err)
		}
		s := w.shape()
		start, end := s.assign(at.UnixMilli())
		if got := time.UnixMilli(start).UTC().Format(time.RFC3339); got != c.start {
			t.Errorf("%s in %s: begins at %s, want %s", c.at, c.zone, got, c.start)
		}
		if got := time.Duration(end-start) * time.Millisecond; got.String() != c.hours {
			t.Errorf("%s in %s: %v, want %s", c.at, c.zone, got, c.hours)
		}
		if got := s.endOf(start); got != end {
			t.Errorf("%s in %s: the end is %d or %d", c.at, c.zone, end, got)
		}
	}
	// A business day from 4 in the morning.
	w := Tumbling(24 * time.Hour).In(zone(t, "Europe/Berlin")).Offset(4 * time.Hour)
	at, _ := time.Parse(time.RFC3339, "2024-03-31T01:59:59Z")
	start, end := w.shape().assign(at.UnixMilli())
	if got := time.UnixMilli(start).UTC().Format(time.RFC3339); got != "2024-03-30T03:00:00Z" || end-start != 23*3600*1000 {
		t.Errorf("%s for %d ms", got, end-start)
	}
}

// FuzzAssign checks that every time is in exactly one window and that windows follow each other.
func FuzzAssign(f *testing.F) {
	zones := []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "America/St_Johns", "Asia/Kathmandu", "Africa/Monrovia"}
	for i := range zones {
		f.Add(int64(1711843200000+i*86400000), int64(i), int64(i*3600000), uint8(i))
	}
	f.Add(int64(-1), int64(7), int64(-5), uint8(0))
	f.Fuzz(func(t *testing.T, at, size, offset int64, z uint8) {
		at %= 1 << 42
		offset %= 1 << 38
		loc := zone(t, zones[int(z)%len(zones)])
		days := 1 + (size%9+9)%9
		for _, w := range []TumblingWindows{
			Tumbling(time.Duration(1+size&0xfffffff) * time.Millisecond).Offset(time.Duration(offset) * time.Millisecond),
			Tumbling(time.Duration(days) * day).In(loc).Offset(time.Duration(offset) * time.Millisecond),
		} {
			if err := w.Validate(); err != nil {
				t.Fatal(err)
			}
			s := w.shape()
			start, end := s.assign(at)
			if at < start || at >= end {
				t.Fatalf("%v: %d is not in [%d, %d)", w, at, start, end)
			}
			for _, same := range []int64{start, end - 1} {
				if a, b := s.assign(same); a != start || b != end {
					t.Fatalf("%v: %d is in [%d, %d), %d in [%d, %d)", w, at, start, end, same, a, b)
				}
			}
			if next, _ := s.assign(end); next != end {
				t.Fatalf("%v: behind [%d, %d) comes one from %d", w, start, end, next)
			}
			if got := s.endOf(start); got != end {
				t.Fatalf("%v: the window from %d ends at %d or %d", w, start, end, got)
			}
		}
	})
}

func TestListCodec(t *testing.T) {
	c := List(codec.Int64())
	for _, list := range [][]int64{nil, {1}, {1, -2, 3}} {
		b, err := c.Append([]byte("x"), &list)
		if err != nil {
			t.Fatal(err)
		}
		var got, copied []int64
		n, err := c.Decode(append(b[1:], 0xff), &got)
		if err != nil || n != len(b)-1 || len(got) != len(list) {
			t.Errorf("%v: %v, %d of %d bytes, %v", list, got, n, len(b)-1, err)
		}
		c.Copy(&copied, &list)
		if len(list) > 0 {
			if copied[0] = 77; list[0] == 77 {
				t.Error("a copy shares memory")
			}
			if _, err := c.Decode(b[1:len(b)-1], &got); err == nil {
				t.Error("a list cut short passed")
			}
		}
	}
	if _, err := c.Decode([]byte{0xff, 0xff, 0xff, 0xff, 0x7f}, new([]int64)); err == nil {
		t.Error("a length without items passed")
	}
}

func TestNames(t *testing.T) {
	names := map[string]string{
		"tumbling(1m0s)":            Tumbling(time.Minute).String(),
		"tumbling(1m0s, offset 1s)": Tumbling(time.Minute).Offset(time.Second).String(),
		"sliding(10s every 2s)":     Sliding(10*time.Second, 2*time.Second).String(),
		"session(6h0m0s)":           Session(6 * time.Hour).String(),
		"early every 1s, purging":   AtEnd().EarlyEvery(time.Second).Purging().String(),
		"tumbling(24h0m0s, in UTC)": Tumbling(24 * time.Hour).In(time.UTC).String(),
	}
	for want, got := range names {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if AtEnd().String() != "" || !strings.Contains(EveryCount(2).String(), "2") {
		t.Error("names of triggers")
	}
}
