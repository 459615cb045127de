// Command second is the second version of the program: it has wider numbers, and adds, drops and renames fields.
package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/test/e2e/versions"
)

type account struct {
	Count int64
	Total int64 `cairn:",alias=Sum"`
	Owner string
	Place place
	Level uint8
}

type place struct {
	Tags []string
	Row  int32
	Name string
}

type item struct {
	N  int64
	By string
}

type step struct {
	Kind string
	N    int64
}

type last struct {
	N int64
	V int32
}

// wide needs more bits than the first version has.
const wide = 1 << 40

func main() {
	versions.Main(2, func(s *cairn.States[string]) func(n int64) versions.View {
		accounts := s.Value[account]("account")
		items := s.Map[string, item]("items")
		history := s.List[step]("history")
		recent := s.Value[last]("recent", operator.TTL{After: time.Hour})
		seen := s.Reducing[int64]("seen", func(into, v *int64) { *into += *v })
		return func(n int64) versions.View {
			a := accounts.Ref()
			a.Count += wide
			a.Total += int64(versions.Amount(n)) * wide
			a.Place.Row += 1 << 20
			a.Place.Tags = append(a.Place.Tags, fmt.Sprintf("tag-%d", n))
			a.Place.Tags = a.Place.Tags[max(0, len(a.Place.Tags)-3):]
			a.Level++
			v := versions.View{
				Count: a.Count, Total: a.Total, Owner: a.Owner, Line: int64(a.Place.Row), Place: a.Place.Name,
				Tags: slices.Clone(a.Place.Tags), Level: uint32(a.Level), Items: map[string]versions.Owned{},
			}
			i, _ := items.Ref(versions.Item(n))
			i.N += wide
			i.By = "v2"
			for k, i := range items.All() {
				v.Items[k] = versions.Owned{N: i.N, By: i.By}
			}
			history.Append(&step{N: n + wide, Kind: "v2"})
			if history.Len() > versions.Steps {
				history.RemoveFirst(1)
			}
			for _, h := range history.All() {
				v.History = append(v.History, versions.Step{N: h.N, Kind: h.Kind})
			}
			r := recent.Ref()
			r.N = n + wide
			r.V++
			v.Recent = versions.Step{N: r.N, V: int64(r.V)}
			one := int64(wide)
			seen.Add(&one)
			v.Seen, _ = seen.Get()
			return v
		}
	})
}
