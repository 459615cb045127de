package serve

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"
)

// childDir tells a child process in which folder it holds a folder of its own until it is killed.
const childDir = "CAIRN_TOOLS_TEST_STATE_DIR"

func holdStateDir(dir string) {
	d, err := openStateDir(dir, fmt.Sprintf("tm-child-%d", os.Getpid()), zap.NewNop())
	if err == nil {
		err = os.WriteFile(filepath.Join(d.ops(), "table"), []byte("state"), 0o600)
	}
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	fmt.Println(d.path)
	_, _ = io.Copy(io.Discard, os.Stdin) // Ends when the test's process does.
}

// child starts a process with a folder in dir and returns its path.
func child(t *testing.T, dir string) (path string, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dead := false
	kill = func() {
		if !dead {
			dead = true
			_ = cmd.Process.Signal(syscall.SIGKILL)
			_ = cmd.Wait()
			_ = in.Close()
		}
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.HasPrefix(line, "error") {
		t.Fatalf("the child says %q: %v", line, err)
	}
	return strings.TrimSpace(line), kill
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// The folder of a process that was killed is removed by the next one that starts; one of a live process is not.
func TestStateOfDeadProcesses(t *testing.T) {
	dir := t.TempDir()
	killed, kill := child(t, dir)
	live, _ := child(t, dir)
	if killed == live {
		t.Fatalf("two processes have one folder: %s", live)
	}
	if !exists(filepath.Join(killed, "ops", "table")) {
		t.Fatal("the second process has removed the folder of the first, which lives")
	}
	kill()
	if !exists(filepath.Join(killed, "ops", "table")) {
		t.Fatal("nobody was there to remove it")
	}
	unlocked := filepath.Join(dir, "state", "tm-half-made") // A process was killed before it had the lock.
	if err := os.Mkdir(unlocked, 0o700); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "local", "copy")
	if err := os.WriteFile(copied, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := openStateDir(dir, "tm-new", zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if exists(killed) || exists(unlocked) {
		t.Error("the folder of a process that is gone is still there")
	}
	if !exists(filepath.Join(live, "ops", "table")) {
		t.Error("the folder of a process that lives is gone")
	}
	// Another TaskManager of this process has its own.
	second, err := openStateDir(dir, "tm-second", zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if !exists(d.ops()) || !exists(d.spool()) || !exists(second.ops()) {
		t.Error("a folder of this process is missing")
	}
	for _, o := range []*stateDir{d, second} {
		if err := o.remove(); err != nil || exists(o.path) {
			t.Errorf("after a clean stop %s is there: %v", o.path, err)
		}
	}
	if !exists(copied) || !exists(live) {
		t.Error("a clean stop removes what is not its own")
	}
}

func TestStateDirThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openStateDir(file, "tm", zap.NewNop()); err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("%v", err)
	}
	if err := makeDefaultDir(file); err == nil || !strings.Contains(err.Error(), file+" is not a folder of this user") {
		t.Errorf("%v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if err := makeDefaultDir(link); err == nil {
		t.Error("a link is taken for a folder of this user")
	}
}
