package streamtest_test

import "testing"

func TestExamples(t *testing.T) {
	t.Run("per minute", testPerMinute)
	t.Run("equivalent", testPerMinuteEquivalent)
}
