package metastore

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of the store. etcd itself refuses requests over 1.5 MiB and over 128 operations; these leave room for the
// guard. Whoever has more to say puts it into the blob store and its address in here.
const (
	MaxKeyLen    = 1024    // bytes
	MaxValueLen  = 100_000 // bytes
	MaxTxnOps    = 100     // conditions, and likewise puts and deletes together
	MaxTxnLength = 1 << 20 // bytes of all keys and values together
)

// Txn is a transaction: if all conditions hold, all puts and deletes take effect at once. No key is touched twice:
// it is put at most once, and is not put and deleted, neither by its name nor by a prefix.
type Txn struct {
	Conditions     []Condition
	Puts           []Put
	Deletes        []string // a key that is not there is not an error
	DeletePrefixes []string // all keys that begin with it; never empty
}

// Put writes one key.
type Put struct {
	Key   string
	Value []byte
}

// Condition is about one key. Make one with Exists, Absent or Unchanged.
type Condition struct {
	Key string
	// Revision is what the key's ModRevision must be; 0 demands that the key is absent, AnyRevision that it exists.
	Revision int64
}

// AnyRevision in a Condition demands that the key exists.
const AnyRevision int64 = -1

// Exists demands that there is such a key.
func Exists(key string) Condition { return Condition{Key: key, Revision: AnyRevision} }

// Absent demands that there is no such key.
func Absent(key string) Condition { return Condition{Key: key} }

// Unchanged demands that the key has not been written since it was read as e.
func Unchanged(e Entry) Condition { return Condition{Key: e.Key, Revision: e.ModRevision} }

func (c Condition) String() string {
	switch c.Revision {
	case 0:
		return c.Key + " is absent"
	case AnyRevision:
		return c.Key + " exists"
	}
	return fmt.Sprintf("%s is at revision %d", c.Key, c.Revision)
}

// Holds tells whether the condition holds for what the store has under its key; nil stands for nothing.
func (c Condition) Holds(e *Entry) bool {
	switch {
	case e == nil:
		return c.Revision == 0
	case c.Revision == AnyRevision:
		return true
	}
	return e.ModRevision == c.Revision
}

func (t Txn) String() string {
	return fmt.Sprintf("transaction of %d conditions, %d puts, %d deletes, %d prefix deletes",
		len(t.Conditions), len(t.Puts), len(t.Deletes), len(t.DeletePrefixes))
}

// Validate says what is wrong with the transaction, everything at once; implementations call it first.
func (t Txn) Validate() error {
	var v problems
	if ops := len(t.Puts) + len(t.Deletes) + len(t.DeletePrefixes); ops > MaxTxnOps || len(t.Conditions) > MaxTxnOps {
		v.tooLarge("%v: limit is %d conditions and %d changes", t, MaxTxnOps, MaxTxnOps)
	}
	length := 0
	for _, c := range t.Conditions {
		v.key("condition", c.Key)
		if c.Revision < AnyRevision {
			v.add("condition on %q: revision %d", c.Key, c.Revision)
		}
		length += len(c.Key)
	}
	puts := make(map[string]bool, len(t.Puts))
	for _, p := range t.Puts {
		v.key("put", p.Key)
		if len(p.Value) > MaxValueLen {
			v.tooLarge("put %q: value has %d bytes, limit is %d", p.Key, len(p.Value), MaxValueLen)
		}
		if puts[p.Key] {
			v.add("put %q: put twice", p.Key)
		}
		puts[p.Key] = true
		length += len(p.Key) + len(p.Value)
	}
	for _, key := range t.Deletes {
		v.key("delete", key)
		if puts[key] {
			v.add("delete %q: put as well", key)
		}
		length += len(key)
	}
	for _, prefix := range t.DeletePrefixes {
		if prefix == "" {
			v.add("delete prefix: it is empty")
		}
		for _, p := range t.Puts {
			if prefix != "" && strings.HasPrefix(p.Key, prefix) {
				v.add("delete prefix %q: %q is put as well", prefix, p.Key)
			}
		}
		length += len(prefix)
	}
	if length > MaxTxnLength {
		v.tooLarge("%v: %d bytes, limit is %d", t, length, MaxTxnLength)
	}
	return v.err()
}

// CheckKey says whether the store can hold that key: printable UTF-8, not empty, no slash at its beginning, at most
// MaxKeyLen bytes. Names of elections follow the same rules.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: key is empty", ErrInvalid)
	case len(key) > MaxKeyLen:
		return fmt.Errorf("%w: key %.40q... has %d bytes, limit is %d", ErrTooLarge, key, len(key), MaxKeyLen)
	case key[0] == '/':
		return fmt.Errorf("%w: key %q begins with a slash", ErrInvalid, key)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w: key %q is not UTF-8", ErrInvalid, key)
	}
	for _, r := range key {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%w: key %q contains %q", ErrInvalid, key, r)
		}
	}
	return nil
}

// problems collects what is wrong, so that all of it is said at once.
type problems struct {
	list  []string
	large bool
}

func (p *problems) add(format string, args ...any) {
	p.list = append(p.list, fmt.Sprintf(format, args...))
}

func (p *problems) tooLarge(format string, args ...any) {
	p.large = true
	p.add(format, args...)
}

func (p *problems) key(what, key string) {
	if err := CheckKey(key); err != nil {
		p.large = p.large || errors.Is(err, ErrTooLarge)
		p.add("%s: %v", what, err)
	}
}

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	kind := ErrInvalid
	if p.large {
		kind = ErrTooLarge
	}
	return fmt.Errorf("%w: %s", kind, strings.Join(p.list, "; "))
}
