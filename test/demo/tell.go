package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// teller prints the story: sections, and lines with the time since it began.
type teller struct {
	begin time.Time
	// before tells what happened before the next line; set once.
	before func()

	mu  sync.Mutex
	out io.Writer // guarded by mu
}

func newTeller(out io.Writer) *teller { return &teller{begin: time.Now(), before: func() {}, out: out} }

func (t *teller) print(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = io.WriteString(t.out, text) // who does not listen misses the story
}

// section begins a part of the story.
func (t *teller) section(title string, words ...string) {
	t.before()
	t.print("\n" + title + "\n" + strings.Repeat("-", len(title)) + "\n")
	for _, w := range words {
		t.print(w + "\n")
	}
	t.print("\n")
}

// line is one event, now.
func (t *teller) line(format string, args ...any) {
	t.before()
	t.lineAt(time.Since(t.begin), format, args...)
}

func (t *teller) lineAt(at time.Duration, format string, args ...any) {
	t.print(fmt.Sprintf("%6.1fs  %s\n", at.Seconds(), fmt.Sprintf(format, args...)))
}

// block is what a command printed.
func (t *teller) block(text string) {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight("         "+line, " \n") + "\n")
	}
	t.print(b.String())
}

// size is a number of bytes for people.
func size(bytes int64) string {
	switch {
	case bytes >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	case bytes >= 1<<10:
		return fmt.Sprintf("%.0f KiB", float64(bytes)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", bytes)
}
