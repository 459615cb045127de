package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// figure is one measured number.
type figure struct {
	Bar   string  `json:"bar"`
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Limit is the bar; 0 for a figure that stands beside one.
	Limit   float64 `json:"limit,omitempty"`
	AtLeast bool    `json:"at_least,omitempty"` // The value must not be below Limit; else not above it.
	Met     bool    `json:"met"`
	Note    string  `json:"note,omitempty"`
	Failed  string  `json:"failed,omitempty"` // Why it could not be measured.
	// Samples are what Value was made of.
	Samples []float64 `json:"samples,omitempty"`
}

func (f *figure) judge() {
	f.Met = f.Failed == "" && (f.Limit == 0 || f.AtLeast && f.Value >= f.Limit || !f.AtLeast && f.Value <= f.Limit)
}

const rowFormat = "%-12s %-58s %14s %12s  %-7s %s\n"

// row prints the figure as a line.
func (f *figure) row(w io.Writer) {
	if f.Failed != "" {
		fmt.Fprintf(w, rowFormat, f.Bar, f.What, "-", "-", "FAILED", f.Failed)
		return
	}
	limit, met := "", ""
	if f.Limit != 0 {
		sign := "<="
		if f.AtLeast {
			sign = ">="
		}
		limit, met = sign+" "+number(f.Limit), "met"
		if !f.Met {
			met = "MISSED"
		}
	}
	fmt.Fprintf(w, rowFormat, f.Bar, f.What, number(f.Value)+" "+f.Unit, limit, met, f.Note)
}

// number has three digits that count.
func number(v float64) string {
	switch {
	case v != 0 && v < 1 && v > -1:
		return strconv.FormatFloat(v, 'f', 4, 64)
	case v < 100 && v > -100:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
}

// report is all that was measured.
type report struct {
	Machine machineInfo `json:"machine"`
	Figures []figure    `json:"figures"`
}

func (r *report) missed() (n int) {
	for i := range r.Figures {
		if !r.Figures[i].Met {
			n++
		}
	}
	return n
}

func (r *report) head(w io.Writer) {
	m := r.Machine
	fmt.Fprintf(w, "%s, %d cores of %s, %.0f GiB, %s\n", m.Go, m.Cores, m.CPU, m.Memory, m.Kernel)
	if m.Load > float64(m.Cores)/4 {
		fmt.Fprintf(w, "the load average is %.1f: others use this machine, and figures in time are not to be trusted\n", m.Load)
	}
	fmt.Fprintf(w, rowFormat, "BAR", "WHAT", "FIGURE", "LIMIT", "", "")
}

func (r *report) summary(w io.Writer) {
	limits := 0
	for i := range r.Figures {
		if r.Figures[i].Limit != 0 || r.Figures[i].Failed != "" {
			limits++
		}
	}
	fmt.Fprintf(w, "%d of %d bars met; load average %.1f before, %.1f after\n", limits-r.missed(), limits, r.Machine.Load, r.Machine.LoadAfter)
}

func (r *report) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// machineInfo says where the figures were taken.
type machineInfo struct {
	CPU       string  `json:"cpu"`
	Cores     int     `json:"cores"`
	Memory    float64 `json:"memory_gib"`
	Kernel    string  `json:"kernel"`
	Go        string  `json:"go"`
	Load      float64 `json:"load_before"`
	LoadAfter float64 `json:"load_after"`
}

func machine() machineInfo {
	m := machineInfo{Cores: runtime.NumCPU(), Go: runtime.Version(), CPU: "an unknown CPU", Load: loadAverage(), Kernel: runtime.GOOS}
	if v := field("/proc/cpuinfo", "model name"); v != "" {
		m.CPU = v
	}
	if v := field("/proc/meminfo", "MemTotal"); v != "" {
		kib, _ := strconv.ParseFloat(strings.TrimSuffix(v, " kB"), 64) // 0 when it is not there.
		m.Memory = kib / (1 << 20)
	}
	if v, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = "Linux " + string(bytes.TrimSpace(v))
	}
	return m
}

// field is the value behind the first line of a file of "name: value" that has that name.
func field(file, name string) string {
	data, _ := os.ReadFile(file) // Not there: no value.
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// loadAverage is the number of runnable threads over the last minute.
func loadAverage() float64 {
	data, _ := os.ReadFile("/proc/loadavg") // Not there: 0.
	first, _, _ := strings.Cut(string(data), " ")
	v, _ := strconv.ParseFloat(first, 64)
	return v
}
