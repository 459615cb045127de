package state

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
	"time"
	"unsafe"
)

// Figure is one measured number.
type Figure struct {
	What  string
	Value float64
	Unit  string
	// Limit is the bar; 0 for a figure that stands beside one.
	Limit   float64
	AtLeast bool // The value must not be below Limit; else not above it.
	Note    string
}

// The clocks of clock_gettime that count the CPU time of the process and of the thread.
const (
	processClock = 2
	threadClock  = 3
)

func cpuOf(clock uintptr) time.Duration {
	var t syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&t)), 0) // Fails for a bad argument only.
	return time.Duration(t.Nano())
}

// resident is the memory of this process that is in RAM, after what nobody refers to was given back.
func resident() (int64, error) {
	debug.FreeOSMemory()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(data), &size, &pages); err != nil {
		return 0, fmt.Errorf("/proc/self/statm is %q: %w", data, err)
	}
	return pages * int64(os.Getpagesize()), nil
}

// collected is the CPU time of the garbage collector so far, without what ran on idle processors.
func collected() time.Duration {
	s := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/gc/mark/idle:cpu-seconds"}}
	runtime.GC() // The figures are those as of the last one.
	metrics.Read(s)
	return time.Duration((s[0].Value.Float64() - s[1].Value.Float64()) * float64(time.Second))
}

// took is how long something took on the clock, and in CPU time of its thread.
type took struct{ wall, cpu time.Duration }

func timed(f func() error) (took, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start, cpu := time.Now(), cpuOf(threadClock)
	err := f()
	return took{time.Since(start), cpuOf(threadClock) - cpu}, err
}

func (t took) String() string {
	return fmt.Sprintf("%.0f ms on the clock, %.0f ms of CPU", t.wall.Seconds()*1000, t.cpu.Seconds()*1000)
}

// peakResident is the most memory that this process ever had in RAM.
func peakResident() (int64, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("memory of the process: %w", err)
	}
	return u.Maxrss << 10, nil
}
