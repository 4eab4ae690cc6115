package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const (
	redraw    = 200 * time.Millisecond // how often a line is drawn at most
	clearLine = "\r\x1b[K"
)

// stepLine is a line on a terminal that is overwritten. Without a terminal it shows nothing.
type stepLine struct {
	out    io.Writer
	silent bool

	mu   sync.Mutex // held while something is written
	last time.Time
}

func newStepLine(cmd *cobra.Command) *stepLine {
	f, ok := cmd.ErrOrStderr().(*os.File)
	return &stepLine{out: cmd.ErrOrStderr(), silent: !ok || !term.IsTerminal(int(f.Fd()))}
}

func (s *stepLine) show(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.silent && time.Since(s.last) >= redraw {
		s.last = time.Now()
		fmt.Fprint(s.out, clearLine, text)
	}
}

// clear removes the line.
func (s *stepLine) clear() { s.print("") }

// print writes a text in place of the line.
func (s *stepLine) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.silent && !s.last.IsZero() {
		text = clearLine + text
	}
	fmt.Fprint(s.out, text)
}

// follow shows what text returns until stop is called, which removes the line.
func (s *stepLine) follow(text func() string) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(redraw)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				s.show(text())
			}
		}
	}()
	return func() {
		close(ended)
		<-done
		s.clear()
	}
}
