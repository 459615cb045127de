package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// reading is what the clocks and counters of this process say.
type reading struct {
	records int64
	cpu     time.Duration // User and system, all threads.
	wall    time.Time
	mallocs uint64
}

func read(records int64) reading {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return reading{records: records, cpu: cpuOf(processClock), wall: time.Now(), mallocs: m.Mallocs}
}

// window is what happened between two readings.
type window struct {
	records int64
	cpu     time.Duration
	wall    time.Duration
	mallocs uint64
}

func (r reading) to(end reading) window {
	return window{end.records - r.records, end.cpu - r.cpu, end.wall.Sub(r.wall), end.mallocs - r.mallocs}
}

// cost is the CPU time of a record in nanoseconds.
func (w window) cost() float64 { return float64(w.cpu) / float64(w.records) }

// The clocks of clock_gettime that count the CPU time of the process and of the thread. They are exact, while
// getrusage knows of a running thread what it had at the last tick of the scheduler.
const (
	processClock = 2
	threadClock  = 3
)

// cpuOf is what such a clock says.
func cpuOf(clock uintptr) time.Duration {
	var t syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&t)), 0) // Fails for a bad argument only.
	return time.Duration(t.Nano())
}

// clockTick is the unit of CPU times in /proc: 100 a second on every Linux.
const clockTick = 10 * time.Millisecond

// cpuOfProcess is the CPU time of another process.
func cpuOfProcess(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), ") ") // The name before it may hold anything.
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(f))
	}
	var ticks int64
	for _, s := range f[11:13] {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// residentOfProcess is the memory of another process that is in RAM, in MiB.
func residentOfProcess(pid int) (float64, error) {
	v := field(fmt.Sprintf("/proc/%d/status", pid), "VmRSS")
	kib, err := strconv.ParseFloat(strings.TrimSuffix(v, " kB"), 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/%d/status: VmRSS is %q", pid, v)
	}
	return kib / 1024, nil
}
