package metastore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cairnstream/cairn/metastore"
)

// Everything wrong with a transaction is said at once.
func TestValidateListsAll(t *testing.T) {
	txn := metastore.Txn{
		Conditions:     []metastore.Condition{{Key: "c", Revision: -7}},
		Puts:           []metastore.Put{{Key: ""}, {Key: "a"}, {Key: "a"}, {Key: "big", Value: make([]byte, metastore.MaxValueLen+1)}},
		Deletes:        []string{"/slash", "a"},
		DeletePrefixes: []string{"", "bi"},
	}
	err := txn.Validate()
	if !errors.Is(err, metastore.ErrTooLarge) {
		t.Errorf("kind: %v", err)
	}
	for _, want := range []string{"revision -7", "key is empty", `put "a": put twice`, `"big": value has 100001 bytes, limit is 100000`,
		"slash", `delete "a": put as well`, "prefix: it is empty", `prefix "bi": "big" is put`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %q", err, want)
		}
	}
	if err := (metastore.Txn{}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestConditionHolds(t *testing.T) {
	e := &metastore.Entry{Key: "k", ModRevision: 7}
	for _, tt := range []struct {
		condition metastore.Condition
		entry     *metastore.Entry
		want      bool
		text      string
	}{
		{metastore.Absent("k"), nil, true, "k is absent"},
		{metastore.Absent("k"), e, false, "k is absent"},
		{metastore.Exists("k"), nil, false, "k exists"},
		{metastore.Exists("k"), e, true, "k exists"},
		{metastore.Unchanged(*e), e, true, "k is at revision 7"},
		{metastore.Unchanged(*e), nil, false, "k is at revision 7"},
		{metastore.Unchanged(*e), &metastore.Entry{Key: "k", ModRevision: 8}, false, "k is at revision 7"},
	} {
		if got := tt.condition.Holds(tt.entry); got != tt.want || tt.condition.String() != tt.text {
			t.Errorf("%v for %v: %v", tt.condition, tt.entry, got)
		}
	}
}
