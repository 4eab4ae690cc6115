package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// printer prints the demo: sections, and lines with the time since the beginning.
type printer struct {
	begin time.Time
	// before prints what happened before the next line; set once.
	before func()

	mu  sync.Mutex
	out io.Writer // guarded by mu
}

func newPrinter(out io.Writer) *printer {
	return &printer{begin: time.Now(), before: func() {}, out: out}
}

func (t *printer) print(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = io.WriteString(t.out, text) // a write error does not end the demo
}

// section begins an act.
func (t *printer) section(title string, words ...string) {
	t.before()
	t.print("\n" + title + "\n" + strings.Repeat("-", len(title)) + "\n")
	for _, w := range words {
		t.print(w + "\n")
	}
	t.print("\n")
}

// line prints one event with the current time.
func (t *printer) line(format string, args ...any) {
	t.before()
	t.lineAt(time.Since(t.begin), format, args...)
}

func (t *printer) lineAt(at time.Duration, format string, args ...any) {
	t.print(fmt.Sprintf("%6.1fs  %s\n", at.Seconds(), fmt.Sprintf(format, args...)))
}

// block prints the output of a command.
func (t *printer) block(text string) {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight("         "+line, " \n") + "\n")
	}
	t.print(b.String())
}

// size formats a number of bytes for people.
func size(bytes int64) string {
	switch {
	case bytes >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	case bytes >= 1<<10:
		return fmt.Sprintf("%.0f KiB", float64(bytes)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", bytes)
}
