package window

// Assigner gives the function from a time to the window that it is in: its start, and its end, which
// is not part of it. w is valid.
func (w TumblingWindows) Assigner() func(time int64) (start, end int64) { return w.shape().assign }
