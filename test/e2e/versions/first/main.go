// Command first is the first version of the program of the end-to-end test of changed types.
package main

import (
	"fmt"
	"time"

	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/test/e2e/versions"
)

type account struct {
	Count int32
	Sum   int32
	Owner string
	Note  string
	Place place
}

type place struct {
	Row  int16
	Name string
}

type item struct{ N int32 }

type step struct {
	N    int32
	Drop bool
}

type last struct{ N int32 }

func main() {
	versions.Main(1, func(s *cairn.States[string]) func(n int64) versions.View {
		accounts := s.Value[account]("account")
		items := s.Map[string, item]("items")
		history := s.List[step]("history")
		recent := s.Value[last]("recent", operator.TTL{After: time.Hour})
		seen := s.Reducing[int32]("seen", func(into, v *int32) { *into += *v })
		return func(n int64) versions.View {
			a := accounts.Ref()
			a.Count++
			a.Sum += versions.Amount(n)
			if a.Owner == "" {
				a.Owner = fmt.Sprintf("owner-%d", n)
			}
			a.Note = fmt.Sprintf("note-%d", n)
			a.Place.Row++
			a.Place.Name = fmt.Sprintf("place-%d", n)
			v := versions.View{
				Count: int64(a.Count), Total: int64(a.Sum), Owner: a.Owner, Note: a.Note,
				Line: int64(a.Place.Row), Place: a.Place.Name, Items: map[string]versions.Owned{},
			}
			i, _ := items.Ref(versions.Item(n))
			i.N++
			for k, i := range items.All() {
				v.Items[k] = versions.Owned{N: int64(i.N)}
			}
			history.Append(&step{N: int32(n), Drop: true})
			if history.Len() > versions.Steps {
				history.RemoveFirst(1)
			}
			for _, h := range history.All() {
				v.History = append(v.History, versions.Step{N: int64(h.N)})
			}
			recent.Set(last{int32(n)})
			r, _ := recent.Get()
			v.Recent = versions.Step{N: int64(r.N)}
			one := int32(1)
			seen.Add(&one)
			total, _ := seen.Get()
			v.Seen = int64(total)
			return v
		}
	})
}
