package table

import "math/bits"

// modulus computes remainders of 64-bit numbers by multiplications, which take less time than a division:
// Lemire, Kaser, Kurz, "Faster remainder by direct computation", 2019. It is exact for divisors below 2^64.
type modulus struct{ hi, lo, d uint64 } // ceil(2^128 / d), and d.

func newModulus(d uint64) modulus {
	hi, rest := ^uint64(0)/d, ^uint64(0)%d
	lo, _ := bits.Div64(rest, ^uint64(0), d)
	lo, carry := bits.Add64(lo, 1, 0)
	return modulus{hi + carry, lo, d}
}

// of is a modulo d.
func (m *modulus) of(a uint64) uint64 {
	h, l := bits.Mul64(m.lo, a)
	h += m.hi * a
	low, _ := bits.Mul64(l, m.d)
	q, mid := bits.Mul64(h, m.d)
	_, carry := bits.Add64(mid, low, 0)
	return q + carry
}
