package job

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDefaultsAreValid(t *testing.T) {
	s := DefaultSettings()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	m := s.Map()
	if len(m) != len(SettingKeys()) {
		t.Errorf("Map has %d of %d keys", len(m), len(SettingKeys()))
	}
	var back Settings
	if err := back.Apply(m); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, s) {
		t.Errorf("after a round trip: %+v", back)
	}
}

// Whatever Apply takes, Map gives back, and the other way round.
func TestSettingsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		duration := func(name string, lo time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(int64(lo), int64(1000*time.Hour)).Draw(t, name))
		}
		s := Settings{
			Parallelism:    rapid.IntRange(1, MaxMaxParallelism).Draw(t, "parallelism"),
			MaxParallelism: rapid.IntRange(1, MaxMaxParallelism).Draw(t, "max"),
			FlushTimeout:   duration("flush", 0), CheckpointInterval: duration("interval", 10*time.Millisecond),
			CheckpointMode:    rapid.SampledFrom([]Mode{ExactlyOnce, AtLeastOnce, Off}).Draw(t, "mode"),
			CheckpointTimeout: duration("timeout", 10*time.Millisecond), MinPause: duration("pause", 0),
			MaxConcurrent:     rapid.IntRange(1, 16).Draw(t, "concurrent"),
			TolerableFailures: rapid.IntRange(0, 1<<30).Draw(t, "failures"),
			Retained:          rapid.IntRange(1, 1000).Draw(t, "retained"),
			OnCancel:          rapid.SampledFrom([]string{"retain", "delete"}).Draw(t, "on cancel"),
			Incremental:       rapid.Bool().Draw(t, "incremental"),
			StateBackend:      rapid.SampledFrom(backends).Draw(t, "backend"),
			StateCompression:  rapid.SampledFrom([]string{"zstd", "off", "1", "4"}).Draw(t, "compression"),
			MaxValue:          Bytes(rapid.Int64Range(int64(KiB), int64(MostMaxValue)).Draw(t, "max value")),
			RestartStrategy:   rapid.SampledFrom([]string{"exponential", "fixed-delay", "none"}).Draw(t, "strategy"),
			RestartInitial:    duration("initial", 0), RestartMax: duration("restart max", time.Millisecond),
		}
		if own := rapid.MapOf(rapid.StringN(1, 8, -1), rapid.SampledFrom(backends)).Draw(t, "backends"); len(own) > 0 {
			s.StateBackends = own
		}
		back := DefaultSettings()
		if err := back.Apply(s.Map()); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, s) {
			t.Fatalf("%+v becomes %+v", s, back)
		}
	})
}

func TestApplyListsEverything(t *testing.T) {
	bad := map[string]string{
		"paralellism": "2", "checkpoint.mode": "exactly", "checkpoint.interval": "10", "checkpoint.timeout": "1ms",
		"parallelism": "0", "max-parallelism": "40000", "checkpoint.incremental": "yes", "state.backend": "rocksdb",
		"checkpoint.min-pause": "-1s", "checkpoint.retained": "1.5", "restart.max": "", "checkpoint.max-concurrent": " 1",
		"state.backend.totals": "rocksdb", "state.backend.": "fs", "state.compression": "5", "state.max-value": "64MiB",
	}
	s := DefaultSettings()
	err := s.Apply(bad)
	var list *Problems
	if !errors.As(err, &list) || len(list.List) != len(bad) {
		t.Fatalf("%v", err)
	}
	for k, v := range bad {
		if !slices.ContainsFunc(list.List, func(p string) bool {
			return strings.HasPrefix(p, k+"="+v+": want ") || strings.HasPrefix(p, fmt.Sprintf("unknown setting %q; known: checkpoint.incremental,", k))
		}) {
			t.Errorf("nothing is said of %s=%s in\n%v", k, v, err)
		}
	}
}

func TestSettingsCombinations(t *testing.T) {
	s := DefaultSettings()
	s.Parallelism, s.MaxParallelism = 9, 8
	s.RestartInitial = 2 * s.RestartMax
	var list *Problems
	if err := s.Validate(); !errors.As(err, &list) || len(list.List) != 2 {
		t.Errorf("%v", err)
	}
}

// Settings are passed by value: what one holder sets, another must not see.
func TestBackendOfOperators(t *testing.T) {
	s := DefaultSettings()
	if err := s.Apply(map[string]string{"state.backend.totals": "pebble"}); err != nil {
		t.Fatal(err)
	}
	other := s
	if err := other.Apply(map[string]string{"state.backend.totals": "memory", "state.backend.a.b": "fs"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		s              Settings
		operator, want string
	}{
		{s, "totals", "pebble"}, {s, "a.b", "fs"}, {s, "x", "fs"}, {other, "totals", "memory"}, {other, "a.b", "fs"},
	} {
		if got := c.s.BackendOf(c.operator); got != c.want {
			t.Errorf("%v, %q: %s, want %s", c.s.StateBackends, c.operator, got, c.want)
		}
	}
}
