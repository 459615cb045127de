package pebble

import (
	"encoding/binary"
	"math"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// The value of an entry in a tree begins with a byte that says under which of the state's schemas the rest was encoded. Its
// top bit is set in states whose values age; then 8 bytes of time follow, which are the beginning of the encoding.
const (
	agedFlag   = 0x80
	maxSchemas = 0x7F
)

// Names of the properties that blocks have, so that a search for old entries reads no others.
const (
	ageProperty    = "cairn.age"
	schemaProperty = "cairn.schema"
)

// entryInterval finds what property is about in an entry. An entry without it is in no interval.
type entryInterval func(value []byte) (uint64, bool)

func (f entryInterval) MapPointKey(key pebbledb.InternalKey, value []byte) (sstable.BlockInterval, error) {
	if v, ok := f(value); ok {
		return sstable.BlockInterval{Lower: v, Upper: v + 1}, nil
	}
	return sstable.BlockInterval{}, nil
}

func (entryInterval) MapRangeKeys(sstable.Span) (sstable.BlockInterval, error) {
	return sstable.BlockInterval{}, nil
}

// ageOf is the time from when on an entry ages. Times before 1970 count as 0: they have expired whatever they are.
func ageOf(value []byte) (uint64, bool) {
	if len(value) < 9 || value[0]&agedFlag == 0 {
		return 0, false
	}
	return uint64(max(int64(binary.LittleEndian.Uint64(value[1:])), 0)), true
}

func schemaOf(value []byte) (uint64, bool) {
	if len(value) == 0 {
		return 0, false
	}
	return uint64(value[0] &^ agedFlag), true
}

func newAgeCollector() pebbledb.BlockPropertyCollector {
	return sstable.NewBlockIntervalCollector(ageProperty, entryInterval(ageOf), nil)
}

func newSchemaCollector() pebbledb.BlockPropertyCollector {
	return sstable.NewBlockIntervalCollector(schemaProperty, entryInterval(schemaOf), nil)
}

// before selects blocks with entries whose property is below limit.
func before(property string, limit uint64) pebbledb.BlockPropertyFilter {
	return sstable.NewBlockIntervalFilter(property, 0, min(limit, math.MaxInt64), nil)
}
