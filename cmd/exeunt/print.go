package main

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"

	about "github.com/exeunt/exeunt/deletion"
)

// writef is fmt.Fprintf for what comes from clients: it escapes the arguments, so that lines
// and columns are only those of the format.
func writef(w io.Writer, format string, args ...any) error {
	printable := make([]any, len(args))
	for i, arg := range args {
		printable[i] = arg
		if err, ok := arg.(error); ok {
			arg = err.Error()
		}
		if v := reflect.ValueOf(arg); v.Kind() == reflect.String {
			printable[i] = about.Printable(v.String())
		}
	}
	_, err := fmt.Fprintf(w, format, printable...)
	return err
}

// printer writes text for people until a write fails.
type printer struct {
	out io.Writer
	err error // the first
}

// Write writes text as it is.
func (p *printer) Write(text []byte) (n int, err error) {
	if p.err == nil {
		n, p.err = p.out.Write(text)
	}
	return n, p.err
}

// printf writes with writef.
func (p *printer) printf(format string, args ...any) {
	_ = writef(p, format, args...) // the printer has the error
}

// line writes a line with writef.
func (p *printer) line(format string, args ...any) { p.printf(format+"\n", args...) }

// table writes rows in columns, with this many blanks between them.
func (p *printer) table(blanks int, rows [][]any) {
	w := tabwriter.NewWriter(p, 0, 8, blanks, ' ', 0)
	for _, cells := range rows {
		_ = writef(w, strings.Repeat("%v\t", len(cells)-1)+"%v\n", cells...) // the printer has the error
	}
	_ = w.Flush()
}

// screen is the standard output of every command, and the log. It escapes control characters
// that JSON and slog leave as they are: DEL, and those above it.
type screen struct{ out io.Writer }

func (s screen) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.out, about.WithoutControls(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
