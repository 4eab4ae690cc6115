package main

import (
	"fmt"
	"io"
	"reflect"

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

// printer writes lines with writef until one fails.
type printer struct {
	out io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		p.err = writef(p.out, format+"\n", args...)
	}
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
