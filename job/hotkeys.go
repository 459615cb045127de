package job

import (
	"cmp"
	"slices"
)

// HotKeys are the keys that an operator gets the most records of, the first ones first.
type HotKeys struct {
	Operator string
	// Total is how many records there were, of late; older ones count less. All keys have a part of them.
	Total float64
	Keys  []HotKey
}

// HotKey is a key with how many of the Total are its records, at least.
type HotKey struct {
	Key     string // For people, and cut if it is long.
	Records float64
}

// Share is the part of all records that k has, from 0 to 1.
func (h HotKeys) Share(k HotKey) float64 {
	if h.Total <= 0 {
		return 0
	}
	return min(k.Records/h.Total, 1)
}

// MergeHotKeys puts together what the subtasks of an operator have, which have no keys in common, and keeps the n hottest.
func MergeHotKeys(operator string, subtasks []HotKeys, n int) HotKeys {
	out := HotKeys{Operator: operator}
	for _, s := range subtasks {
		out.Total += s.Total
		out.Keys = append(out.Keys, s.Keys...)
	}
	slices.SortFunc(out.Keys, func(a, b HotKey) int {
		return cmp.Or(cmp.Compare(b.Records, a.Records), cmp.Compare(a.Key, b.Key))
	})
	out.Keys = slices.Clip(out.Keys[:min(len(out.Keys), n)])
	return out
}
