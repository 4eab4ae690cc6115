package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/exeunt/exeunt/registry/importer"
)

const (
	// redraw is how often the bar is drawn.
	redraw    = 200 * time.Millisecond
	clearLine = "\r\x1b[K"
)

// shower shows the progress of an import: a bar on a terminal, otherwise a line for
// each repository. Problems are lines in both cases.
type shower struct {
	out, errs io.Writer
	width     int // of the terminal; 0: none
	run       *importer.Import
	mu        sync.Mutex // held while something is written

	repositories []string // that are done; the importer's calls do not overlap
}

func newShower(out, errs io.Writer) *shower {
	return &shower{out: out, errs: errs, width: terminalWidth(errs)}
}

// start draws the bar until stop is called, which removes it.
func (s *shower) start(ctx context.Context) (stop func()) {
	if s.width == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	ended.Go(func() {
		tick := time.NewTicker(redraw)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				s.write(s.errs, clearLine)
				return
			case <-tick.C:
				s.write(s.errs, clearLine+barText(s.width, &s.run.Progress))
			}
		}
	})
	return func() {
		cancel()
		ended.Wait()
	}
}

// write ignores errors: the import continues without a reader.
func (s *shower) write(to io.Writer, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(to, text)
}

func (s *shower) failed(p importer.Problem) {
	line := p.String() + "\n"
	if s.width > 0 {
		line = clearLine + line
	}
	s.write(s.errs, line)
}

func (s *shower) done(r importer.Repository) {
	s.repositories = append(s.repositories, r.Name)
	if s.width == 0 {
		s.write(s.out, fmt.Sprintf("%s: %s (%d of %s)\n", r.Name, counted(r.Manifests, "manifest"),
			s.run.Repositories.Load(), counted(s.run.AllRepositories.Load(), "repository")))
	}
}

// barText returns the bar for a terminal of this width.
func barText(width int, p *importer.Progress) string {
	done, all := p.Manifests.Load(), p.AllManifests.Load()
	text := fmt.Sprintf(" %d/%d manifests, %s sent", done, all, humanBytes(p.BytesSent.Load()))
	if n := p.Failed.Load(); n > 0 {
		text += fmt.Sprintf(", %d failed", n)
	}
	room := width - len(text) - len("[]") - 1 // the terminal may wrap after its last column
	if room < 5 {
		return strings.TrimSpace(text)[:max(0, min(len(text)-1, width-1))]
	}
	full := 0
	if all > 0 {
		full = int(int64(room) * min(done, all) / all)
	}
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", room-full) + "]" + text
}
