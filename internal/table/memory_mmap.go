//go:build linux && !race

package table

import "syscall"

// canMap is false under the race detector, which watches the garbage collector's heap only.
const canMap = true

func mapRegion(size int) []byte {
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil // The heap has to do.
	}
	if size >= maxRegion {
		_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE) // Advice: random access misses the translation cache less.
	}
	return b
}

func unmap(b []byte) { _ = syscall.Munmap(b) }
