package job

import (
	"errors"
	"fmt"
	"testing"
)

func TestFailureOf(t *testing.T) {
	plain := errors.New("x")
	panicked := &Error{Class: ClassUser, Stack: "main.go:1", Err: errors.New("panic: boom")}
	for _, x := range []struct {
		name  string
		err   error
		class Class
		stack string
	}{
		{"without a class", plain, ClassInternal, ""},
		{"with one", Errorf(ClassRecord, "line 7"), ClassRecord, ""},
		{"wrapped", fmt.Errorf("source: %w", Errorf(ClassExternal, "timeout")), ClassExternal, ""},
		{"the innermost counts", Errorf(ClassInfrastructure, "connect: %w", Errorf(ClassRefused, "older attempt")), ClassRefused, ""},
		{"over three levels", fmt.Errorf("a: %w", Errorf(ClassExternal, "b: %w", fmt.Errorf("c: %w", Errorf(ClassUser, "d")))), ClassUser, ""},
		{"a panic", fmt.Errorf("operator: %w", panicked), ClassUser, "main.go:1"},
		{"a panic, classified again", Errorf(ClassInternal, "operator: %w", panicked), ClassUser, "main.go:1"},
		{"joined", errors.Join(plain, Errorf(ClassExternal, "y")), ClassExternal, ""},
	} {
		f := FailureOf("sum/2", "w1", x.err)
		if f.Class != x.class || f.Stack != x.stack || f.Message != x.err.Error() || f.Task != "sum/2" || f.Worker != "w1" {
			t.Errorf("%s: %+v", x.name, f)
		}
		if f.Retriable() != (x.class != ClassRefused && x.class != ClassRecord) {
			t.Errorf("%s: retriable %v", x.name, f.Retriable())
		}
	}
	if s := (Failure{Class: ClassUser, Task: "sum/2", Message: "m"}).String(); s != "sum/2: user-code: m" {
		t.Error(s)
	}
	if s := (Failure{Class: ClassUser, Message: "m"}).String(); s != "user-code: m" {
		t.Error(s)
	}
}
