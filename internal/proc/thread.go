package proc

import "runtime"

func lockThread() { runtime.LockOSThread() }
