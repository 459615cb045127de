package pebble

import "encoding/binary"

// The value of an entry in a tree begins with a byte that says under which of the state's schemas the rest was encoded. Its
// top bit is set in states whose values age; then 8 bytes of time follow, which are the beginning of the encoding.
const (
	agedFlag   = 0x80
	maxSchemas = 0x7F
)

// ageOf is the time from when on an entry ages.
func ageOf(value []byte) (int64, bool) {
	if len(value) < 9 || value[0]&agedFlag == 0 {
		return 0, false
	}
	return int64(binary.LittleEndian.Uint64(value[1:])), true
}
