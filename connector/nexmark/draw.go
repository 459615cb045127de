package nexmark

// gamma is the step of splitmix64; gammaN is N steps.
const (
	gamma   = 0x9E3779B97F4A7C15
	gamma2  = 2 * gamma & (1<<64 - 1)
	gamma3  = 3 * gamma & (1<<64 - 1)
	gamma4  = 4 * gamma & (1<<64 - 1)
	gamma5  = 5 * gamma & (1<<64 - 1)
	gamma6  = 6 * gamma & (1<<64 - 1)
	gamma16 = 16 * gamma & (1<<64 - 1)
)

// Gamma is the step between two states of splitmix64.
const Gamma uint64 = gamma

// Mix is the finalizer of splitmix64.
func Mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// hi is a number in [0, m) from the upper half of x; 1 <= m < 2^32.
func hi(x, m uint64) uint64 { return (x >> 32) * m >> 32 }

// lo is a number in [0, m) from the lower half of x; 1 <= m < 2^32.
func lo(x, m uint64) uint64 { return uint64(uint32(x)) * m >> 32 }

// price is long-tailed: 100 * 2^e <= price < 200 * 2^e, with e uniform in 0..19.
func price(x uint64) int64 {
	floor := uint64(100) << (hi(x, 20) & 63)
	return int64(floor + lo(x, floor))
}

// letters8 makes 8 letters a..p of the low 32 bits of x, 4 bits each, in the bytes of a little-endian number.
func letters8(x uint64) uint64 {
	x &= 0xFFFFFFFF
	x = (x | x<<16) & 0x0000FFFF0000FFFF
	x = (x | x<<8) & 0x00FF00FF00FF00FF
	x = (x | x<<4) & 0x0F0F0F0F0F0F0F0F
	return x + 0x6161616161616161
}
