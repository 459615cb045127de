package sealed

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// KeySize is the size of a key, in bytes.
const KeySize = 32

// maxID is the longest id of a key, in bytes.
const maxID = 16

// Keys are the keys of a store: the first one seals, all of them open.
type Keys []Key

// Key is one of them. Its id is in each object that it sealed.
type Key struct {
	ID     string // At most 16 of a-z, 0-9 and the hyphen.
	Secret [KeySize]byte
}

// NewKey makes a key.
func NewKey(id string) (Key, error) {
	k := Key{ID: id}
	if err := checkID(id); err != nil {
		return k, err
	}
	_, err := rand.Read(k.Secret[:])
	return k, err
}

// Line is the key as ParseKeys reads it.
func (k Key) Line() string { return k.ID + " " + base64.StdEncoding.EncodeToString(k.Secret[:]) }

// String leaves the secret out.
func (k Key) String() string { return "key " + k.ID }

// ParseKeys reads keys, each a line of an id, a space and 32 bytes in base64. Lines that are empty or begin with # are passed
// over. To rotate, put a new key in front: objects are sealed with it from then on, and those of before are opened with theirs.
// No error has any of a secret in it.
func ParseKeys(text string) (Keys, error) {
	var keys Keys
	var errs []error
	seen := map[string]bool{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("line %d: %s", n, fmt.Sprintf(format, args...)))
		}
		id, secret, ok := strings.Cut(line, " ")
		if !ok {
			bad("want the id of a key, a space and %d bytes in base64", KeySize)
			continue
		}
		if err := checkID(id); err != nil {
			bad("%v", err)
			continue
		}
		if seen[id] {
			bad("there is a key %q already", id)
			continue
		}
		seen[id] = true
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(secret))
		if err != nil || len(raw) != KeySize {
			bad("key %q is not %d bytes in base64", id, KeySize)
			continue
		}
		keys = append(keys, Key{id, [KeySize]byte(raw)})
	}
	if len(keys) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("there is no key"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("keys of the blob store: %w", err)
	}
	return keys, nil
}

func checkID(id string) error {
	if id == "" || len(id) > maxID {
		return fmt.Errorf("the id of a key has %d bytes, want 1 to %d", len(id), maxID)
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("the id %q of a key has other characters than a-z, 0-9 and the hyphen", id)
		}
	}
	return nil
}
