package main

import (
	"context"

	"github.com/cairnstream/cairn/bench/state"
)

// measureState measures the backend fs with 10 M keys.
func measureState(ctx context.Context, c config) ([]figure, error) {
	measured, err := state.Measure(ctx, state.Config{Dir: c.dir})
	var out []figure
	for _, f := range measured {
		out = append(out, figure{What: f.What, Value: f.Value, Unit: f.Unit, Limit: f.Limit, AtLeast: f.AtLeast, Note: f.Note})
	}
	return out, err
}
