package job

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Mode is the guarantee of a job's checkpoints.
type Mode string

// The modes of checkpoints.
const (
	ExactlyOnce Mode = "exactly-once"
	AtLeastOnce Mode = "at-least-once"
	Off         Mode = "off"
)

// Settings are the settings of a job, after defaults. Durations are positive unless said otherwise.
type Settings struct {
	Parallelism        int
	MaxParallelism     int
	FlushTimeout       time.Duration // Longest time that a record waits for its frame to fill.
	CheckpointInterval time.Duration
	CheckpointMode     Mode
	CheckpointTimeout  time.Duration
	MinPause           time.Duration // From the completion of one checkpoint to the next trigger; may be 0.
	MaxConcurrent      int
	TolerableFailures  int // Failed checkpoints in a row that a job survives; may be 0.
	Retained           int
	OnCancel           string // retain, delete
	Incremental        bool
	StateBackend       string // memory, fs, pebble
	// StateBackends are those of operators that have another one, by operator; nil when there are none.
	StateBackends map[string]string `json:",omitempty"`
	// StateCompression is how the state in snapshots is compressed: zstd, which is its fastest level; off; or a level of
	// zstd from 1 to 4.
	StateCompression string
	MaxValue         Bytes  // Of the encoding of one value of a state.
	RestartStrategy  string // exponential, fixed-delay, none
	RestartInitial   time.Duration
	RestartMax       time.Duration
}

// MostMaxValue is the largest state.max-value: a value and its key have to fit into a block of a snapshot, of 64 MiB.
const MostMaxValue = 48 * MiB

// DefaultSettings are those of a job that sets nothing.
func DefaultSettings() Settings {
	return Settings{
		Parallelism: 1, MaxParallelism: DefaultMaxParallelism, FlushTimeout: 5 * time.Millisecond,
		CheckpointInterval: 10 * time.Second, CheckpointMode: ExactlyOnce, CheckpointTimeout: 10 * time.Minute,
		MaxConcurrent: 1, TolerableFailures: 3, Retained: 3, OnCancel: "retain", Incremental: true,
		StateBackend: "fs", StateCompression: "zstd", MaxValue: 16 * MiB,
		RestartStrategy: "exponential", RestartInitial: 100 * time.Millisecond, RestartMax: time.Minute,
	}
}

// setting reads and writes one key of Settings as text.
type setting struct {
	set func(*Settings, string) error
	get func(*Settings) string
}

func intSetting(f func(*Settings) *int, lo, hi int) setting {
	return setting{
		set: func(s *Settings, v string) error {
			n, err := strconv.Atoi(v)
			if err != nil || n < lo || n > hi {
				return fmt.Errorf("want a whole number from %d to %d", lo, hi)
			}
			*f(s) = n
			return nil
		},
		get: func(s *Settings) string { return strconv.Itoa(*f(s)) },
	}
}

func durationSetting(f func(*Settings) *time.Duration, lo time.Duration) setting {
	return setting{
		set: func(s *Settings, v string) error {
			d, err := time.ParseDuration(v)
			switch {
			case err != nil:
				return fmt.Errorf("want a duration with a unit, such as 500ms or 10s")
			case d < lo:
				return fmt.Errorf("want at least %v", lo)
			}
			*f(s) = d
			return nil
		},
		get: func(s *Settings) string { return f(s).String() },
	}
}

func bytesSetting(f func(*Settings) *Bytes, lo, hi Bytes) setting {
	return setting{
		set: func(s *Settings, v string) error {
			n, err := ParseBytes(v)
			switch {
			case err != nil:
				return errors.New("want a size with a unit, such as 512KiB or 16MiB")
			case n < lo || n > hi:
				return fmt.Errorf("want %v to %v", lo, hi)
			}
			*f(s) = n
			return nil
		},
		get: func(s *Settings) string { return f(s).String() },
	}
}

func choiceSetting(f func(*Settings) *string, choices ...string) setting {
	return setting{
		set: func(s *Settings, v string) error {
			if !slices.Contains(choices, v) {
				return fmt.Errorf("want one of %s", strings.Join(choices, ", "))
			}
			*f(s) = v
			return nil
		},
		get: func(s *Settings) string { return *f(s) },
	}
}

// backends are the names of the state backends.
var backends = []string{"memory", "fs", "pebble"}

// backendPrefix and the name of an operator are the key of the operator's own state backend.
const backendPrefix = "state.backend."

var settings = map[string]setting{
	"parallelism":                   intSetting(func(s *Settings) *int { return &s.Parallelism }, 1, MaxMaxParallelism),
	"max-parallelism":               intSetting(func(s *Settings) *int { return &s.MaxParallelism }, 1, MaxMaxParallelism),
	"flush-timeout":                 durationSetting(func(s *Settings) *time.Duration { return &s.FlushTimeout }, 0),
	"checkpoint.interval":           durationSetting(func(s *Settings) *time.Duration { return &s.CheckpointInterval }, 10*time.Millisecond),
	"checkpoint.mode":               choiceSetting(func(s *Settings) *string { return (*string)(&s.CheckpointMode) }, string(ExactlyOnce), string(AtLeastOnce), string(Off)),
	"checkpoint.timeout":            durationSetting(func(s *Settings) *time.Duration { return &s.CheckpointTimeout }, 10*time.Millisecond),
	"checkpoint.min-pause":          durationSetting(func(s *Settings) *time.Duration { return &s.MinPause }, 0),
	"checkpoint.max-concurrent":     intSetting(func(s *Settings) *int { return &s.MaxConcurrent }, 1, 16),
	"checkpoint.tolerable-failures": intSetting(func(s *Settings) *int { return &s.TolerableFailures }, 0, 1<<30),
	"checkpoint.retained":           intSetting(func(s *Settings) *int { return &s.Retained }, 1, 1000),
	"checkpoint.on-cancel":          choiceSetting(func(s *Settings) *string { return &s.OnCancel }, "retain", "delete"),
	"checkpoint.incremental":        boolSetting(func(s *Settings) *bool { return &s.Incremental }),
	"state.backend":                 choiceSetting(func(s *Settings) *string { return &s.StateBackend }, backends...),
	"state.compression":             choiceSetting(func(s *Settings) *string { return &s.StateCompression }, "zstd", "off", "1", "2", "3", "4"),
	"state.max-value":               bytesSetting(func(s *Settings) *Bytes { return &s.MaxValue }, KiB, MostMaxValue),
	"restart.strategy":              choiceSetting(func(s *Settings) *string { return &s.RestartStrategy }, "exponential", "fixed-delay", "none"),
	"restart.initial":               durationSetting(func(s *Settings) *time.Duration { return &s.RestartInitial }, 0),
	"restart.max":                   durationSetting(func(s *Settings) *time.Duration { return &s.RestartMax }, time.Millisecond),
}

func boolSetting(f func(*Settings) *bool) setting {
	return setting{
		set: func(s *Settings, v string) error {
			if v != "true" && v != "false" {
				return fmt.Errorf("want true or false")
			}
			*f(s) = v == "true"
			return nil
		},
		get: func(s *Settings) string { return strconv.FormatBool(*f(s)) },
	}
}

// backendSetting is the state backend of one operator. Whether there is such an operator Spec.Validate says.
func backendSetting(operator string) setting {
	return setting{
		set: func(s *Settings, v string) error {
			if !slices.Contains(backends, v) {
				return fmt.Errorf("want one of %s", strings.Join(backends, ", "))
			}
			// A copy: settings are passed by value.
			m := map[string]string{operator: v}
			for name, other := range s.StateBackends {
				if name != operator {
					m[name] = other
				}
			}
			s.StateBackends = m
			return nil
		},
	}
}

// BackendOf is the state backend of an operator.
func (s Settings) BackendOf(operator string) string {
	if name, ok := s.StateBackends[operator]; ok {
		return name
	}
	return s.StateBackend
}

// settingOf finds what a key sets.
func settingOf(key string) (setting, bool) {
	if operator, ok := strings.CutPrefix(key, backendPrefix); ok && operator != "" {
		return backendSetting(operator), true
	}
	d, ok := settings[key]
	return d, ok
}

// SettingKeys lists the keys that Apply takes, sorted; besides these there is state.backend.OPERATOR.
func SettingKeys() []string { return slices.Sorted(maps.Keys(settings)) }

// Map gives every setting as text under its key.
func (s Settings) Map() map[string]string {
	m := make(map[string]string, len(settings))
	for k, d := range settings {
		m[k] = d.get(&s)
	}
	for operator, name := range s.StateBackends {
		m[backendPrefix+operator] = name
	}
	return m
}

// Apply sets the given keys. The error lists every unknown key and every bad value.
func (s *Settings) Apply(values map[string]string) error {
	var problems []string
	for _, k := range slices.Sorted(maps.Keys(values)) {
		d, ok := settingOf(k)
		if !ok {
			problems = append(problems, fmt.Sprintf("unknown setting %q; known: %s, and state.backend.OPERATOR", k, strings.Join(SettingKeys(), ", ")))
			continue
		}
		if err := d.set(s, values[k]); err != nil {
			problems = append(problems, fmt.Sprintf("%s=%s: %v", k, values[k], err))
		}
	}
	if len(problems) > 0 {
		return &Problems{What: "settings", List: problems}
	}
	return nil
}

// Validate lists the combinations that cannot work.
func (s Settings) Validate() error {
	var problems []string
	if s.Parallelism > s.MaxParallelism {
		problems = append(problems, fmt.Sprintf("parallelism %d is above max-parallelism %d: raise max-parallelism (it is fixed for the life of the state) or lower parallelism", s.Parallelism, s.MaxParallelism))
	}
	if s.RestartInitial > s.RestartMax {
		problems = append(problems, fmt.Sprintf("restart.initial %v is above restart.max %v", s.RestartInitial, s.RestartMax))
	}
	if len(problems) > 0 {
		return &Problems{What: "settings", List: problems}
	}
	return nil
}
