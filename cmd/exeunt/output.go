package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	about "github.com/exeunt/exeunt/deletion"
)

// output is the flag -o: the format of a command's result. Every command has it,
// and the formats are the same everywhere:
//
//	(none)  text or a table, for people; may change between versions
//	json    the whole result as one document
//	yaml    the same document in YAML
//	name    one KIND/NAME per line, for the arguments of another command
type output struct {
	format  string
	formats []string // that the command supports
	oneLine bool     // json is one line: the command keeps running after it
}

// addFlag adds -o with json and yaml, and with the extra formats that the
// command can print: "name".
func (o *output) addFlag(cmd *cobra.Command, extra ...string) {
	o.formats = append([]string{"json", "yaml"}, extra...)
	cmd.Flags().StringVarP(&o.format, "output", "o", "", "`format` of the result: "+strings.Join(o.formats, ", ")+" (default: text)")
	complete(cmd, "output", words(o.formats...))
	cmd.PreRunE = func(*cobra.Command, []string) error { return o.check() }
}

// check refuses an unknown format, before the server is asked.
func (o *output) check() error {
	if o.format == "" || slices.Contains(o.formats, o.format) {
		return nil
	}
	return fmt.Errorf("-o %q: want %s, or leave it out for text", o.format, strings.Join(o.formats, ", "))
}

// document is one result in every format.
type document struct {
	value any              // for json and yaml
	names []string         // for name, as objectName makes them
	text  func(p *printer) // for people
}

// print writes the document in the requested format.
func (o *output) print(w io.Writer, d document) error {
	switch o.format {
	case "json":
		if o.oneLine {
			return json.NewEncoder(w).Encode(d.value)
		}
		text, err := json.MarshalIndent(d.value, "", "  ")
		if err == nil {
			_, err = fmt.Fprintf(w, "%s\n", text)
		}
		return err
	case "yaml":
		text, err := yaml.Marshal(d.value)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	case "name":
		return writeNames(w, d.names)
	}
	p := &printer{out: w}
	d.text(p)
	return p.err
}

// printAll writes several documents: as one List, or one after the other.
func (o *output) printAll(w io.Writer, all []document) error {
	if len(all) == 1 {
		return o.print(w, all[0])
	}
	joined := document{text: func(p *printer) {
		for i, d := range all {
			if i > 0 {
				p.line("")
			}
			d.text(p)
		}
	}}
	items := []any{}
	for _, d := range all {
		items = append(items, d.value)
		joined.names = append(joined.names, d.names...)
	}
	joined.value = map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": items}
	return o.print(w, joined)
}

func writeNames(w io.Writer, names []string) error {
	for _, name := range names {
		if err := writef(w, "%s\n", name); err != nil {
			return err
		}
	}
	return nil
}

// objectName returns the name of an object as kubectl -o name prints it:
// configmap/a, deployment.apps/web.
func objectName(apiVersion, kind, name string) string {
	kind = strings.ToLower(kind)
	if gv, err := schema.ParseGroupVersion(apiVersion); err == nil && gv.Group != "" {
		kind += "." + gv.Group
	}
	return kind + "/" + name
}

// listed is a list in every format. The table has the columns of the header, with tabs between the
// titles; a list without items prints the line none instead.
func listed[T any](apiVersion, kind string, items []T, none, header string, row func(T) (name string, cells []any)) document {
	d := document{value: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{}, "items": append([]T{}, items...)}}
	rows := [][]any{{}}
	for _, title := range strings.Split(header, "\t") {
		rows[0] = append(rows[0], title)
	}
	for _, item := range items {
		name, cells := row(item)
		d.names, rows = append(d.names, name), append(rows, cells)
	}
	d.text = func(p *printer) {
		if len(items) == 0 {
			p.line("%s", none)
			return
		}
		p.table(3, rows)
	}
	return d
}

// counted returns a number with its noun: "1 object", "2 objects", "0 repositories".
func counted[N int | int64](n N, noun string) string {
	return fmt.Sprintf("%d %s", n, about.Plural(n, noun))
}

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

// lines writes each as a line.
func (p *printer) lines(all []string) {
	for _, line := range all {
		p.line("%s", line)
	}
}

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
