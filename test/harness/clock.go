package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// clockVariable names the file with a server's clock offset, in whole seconds.
const clockVariable = "EXEUNT_TEST_CLOCK"

// clockSource is the file that clockPath adds to the package time. Only the wall clock
// steps: timers and durations use the monotonic clock, as after a real step.
const clockSource = `package time

import (
	"sync/atomic"
	"syscall"
)

var clockOffset atomic.Int64 // seconds

func init() {
	name, ok := syscall.Getenv("` + clockVariable + `")
	if !ok {
		return
	}
	readClockOffset(name)
	go func() {
		for {
			Sleep(20 * Millisecond)
			readClockOffset(name)
		}
	}()
}

func readClockOffset(name string) {
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer syscall.Close(fd)
	var text [32]byte
	n, err := syscall.Read(fd, text[:])
	if err != nil || n < 1 {
		return
	}
	value, negative := int64(0), text[0] == '-'
	for _, digit := range text[:n] {
		if digit >= '0' && digit <= '9' {
			value = 10*value + int64(digit-'0')
		}
	}
	if negative {
		value = -value
	}
	clockOffset.Store(value)
}
`

// clockPath builds once per test binary a server whose wall clock can be stepped. The
// kernel gives Go the time without a system call, so nothing between the two can change it;
// the build replaces time.Now. It compiles everything again the first time: minutes.
var clockPath = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "clock-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	source := filepath.Join(runtime.GOROOT(), "src", "time")
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		return "", err
	}
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	stepped := strings.Replace(string(text), now, now+"\tsec += clockOffset.Load()\n", 1)
	if stepped == string(text) {
		return "", fmt.Errorf("build a server with its own clock: time.Now of %s is not as expected", runtime.Version())
	}
	overlay := map[string]string{}
	for name, content := range map[string]string{"time.go": stepped, "offset.go": clockSource} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return "", err
		}
		overlay[filepath.Join(source, name)] = file
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		return "", err
	}
	return build(root(), filepath.Join(root(), "test", "bin", "exeunt-clock"), "./cmd/exeunt", "-s -w", "-overlay", file)
})

// WithClock makes the server start, from its next start on, with a wall clock that SetClock
// steps.
func (s *Server) WithClock(t testing.TB) {
	t.Helper()
	s.Registry() // keeps its address: the output of the next start comes after this one's
	s.program, s.clock = clockPath, true
	s.SetClock(0)
}

// SetClock sets the difference between the server's wall clock and the machine's, at once.
func (s *Server) SetClock(offset time.Duration) {
	s.t.Helper()
	// Renamed, so that the server never reads half of it.
	file := s.clockFile()
	if err := os.WriteFile(file+".new", fmt.Appendf(nil, "%d\n", int64(offset/time.Second)), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) clockFile() string { return filepath.Join(s.dir, "test.clock") }
