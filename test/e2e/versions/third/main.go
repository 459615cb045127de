// Command third is the third version of the program, which renames what the second one has and widens it once more. Built
// with the tag broken it is a fourth one, which cannot read what the others wrote.
package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/test/e2e/versions"
)

type account struct {
	Level  uint32
	Count  count
	Amount int64  `cairn:",alias=Total,alias=Sum"` // Of the second version, and of the first one.
	Holder string `cairn:",alias=Owner"`
	Place  place
	Marks  map[string]int32
}

type place struct {
	Line int64 `cairn:",alias=Row"`
	Name string
	Tags []string
}

type item struct {
	By     string
	Number int64 `cairn:",alias=N"`
}

type step struct {
	At   int64 `cairn:",alias=N"`
	Kind string
}

type last struct {
	V  int64
	At int64 `cairn:",alias=N"`
}

const wide = 1 << 41

func main() {
	versions.Main(version, func(s *cairn.States[string]) func(n int64) versions.View {
		accounts := s.Value[account]("account")
		items := s.Map[string, item]("items")
		history := s.List[step]("history")
		recent := s.Value[last]("recent", operator.TTL{After: time.Hour})
		seen := s.Reducing[int64]("seen", func(into, v *int64) { *into += *v })
		return func(n int64) versions.View {
			a := accounts.Ref()
			add(&a.Count)
			a.Amount++
			a.Place.Line += wide
			a.Level += 1000
			if a.Marks == nil {
				a.Marks = map[string]int32{}
			}
			a.Marks[fmt.Sprintf("mark-%d", n/8%3)]++
			v := versions.View{
				Count: countOf(a.Count), Total: a.Amount, Owner: a.Holder, Line: a.Place.Line, Place: a.Place.Name,
				Tags: slices.Clone(a.Place.Tags), Level: a.Level, Marks: maps.Clone(a.Marks), Items: map[string]versions.Owned{},
			}
			i, _ := items.Ref(versions.Item(n))
			i.Number += wide
			i.By = "v3"
			for k, i := range items.All() {
				v.Items[k] = versions.Owned{N: i.Number, By: i.By}
			}
			history.Append(&step{At: n + wide, Kind: "v3"})
			if history.Len() > versions.Steps {
				history.RemoveFirst(1)
			}
			for _, h := range history.All() {
				v.History = append(v.History, versions.Step{N: h.At, Kind: h.Kind})
			}
			r := recent.Ref()
			r.At = n + wide
			r.V += wide
			v.Recent = versions.Step{N: r.At, V: r.V}
			one := int64(wide)
			seen.Add(&one)
			v.Seen, _ = seen.Get()
			return v
		}
	})
}
