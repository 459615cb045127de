package grpc

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"

	"github.com/cairnstream/cairn/internal/invariant"
)

// buffers is where frames live on both sides, from encoding to the socket and from the socket to
// decoding. It is a mem.BufferPool, so that gRPC gives sent buffers back by itself.
var buffers mem.BufferPool = &bufferPool{}

// Sizes are powers of two. Smaller buffers are not worth a pool's bookkeeping, larger ones are rare
// and would keep much memory alive.
const (
	minBufferBits = 10
	maxBufferBits = 20
)

type bufferPool struct {
	classes [maxBufferBits - minBufferBits + 1]sync.Pool
}

// Get returns a buffer of n bytes, with undefined content and perhaps more capacity.
func (p *bufferPool) Get(n int) *[]byte {
	c := max(bits.Len(uint(max(n, 1)-1)), minBufferBits) - minBufferBits
	if c < len(p.classes) {
		if v := p.classes[c].Get(); v != nil {
			b := v.(*[]byte)
			*b = (*b)[:n]
			return b
		}
		b := make([]byte, n, 1<<(c+minBufferBits))
		return &b
	}
	b := make([]byte, n)
	return &b
}

// Put takes a buffer back. Debug builds overwrite it, so that a late reader sees nonsense.
func (p *bufferPool) Put(b *[]byte) {
	full := (*b)[:cap(*b)]
	if invariant.Enabled {
		for i := range full {
			full[i] = 0xDB
		}
	}
	c := bits.Len(uint(len(full))) - 1 - minBufferBits // The class that full can serve wholly.
	if c >= 0 && c < len(p.classes) {
		p.classes[c].Put(b)
	}
}
