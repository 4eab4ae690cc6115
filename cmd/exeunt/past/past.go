// Package past has the commands about earlier states of objects: history, blame, revert, and the part of diff that compares
// two times. It asks a server through a Session and knows neither flags of connections nor formats of output.
package past

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/exeunt/exeunt/deletion/v1"
)

// Session is a command's connection and its output.
type Session interface {
	// Flags adds the flags of the connection and of the output.
	Flags(cmd *cobra.Command)
	// Find connects, and returns the path of the one object that the arguments name.
	Find(args []string) (path string, err error)
	// Target is a Restore of the one object that the arguments name.
	Target(args []string) (v1.RestoreSpec, error)
	Send(ctx context.Context, method, path string, query map[string]string, into any) error
	// Restore sends a Restore and waits for its end.
	Restore(ctx context.Context, spec v1.RestoreSpec, notes io.Writer) (v1.RestoreStatus, error)
	// Print writes a value as the flags say, or as text. A list has its items.
	Print(w io.Writer, value any, text func(Printer)) error
	List(w io.Writer, kind string, items []any, none string, header string, row func(i int) []any) error
	// Formatted reports whether the flags ask for a format.
	Formatted() bool
}

// Printer writes text for people.
type Printer interface {
	Line(format string, args ...any)
}

// Help says what Parse reads.
const Help = `A time is one in RFC 3339, "10:00" or "2026-11-17 10:00" where you are, or "2 hours ago". A
number is a version: the resourceVersion of any object or list.`

var (
	ago      = regexp.MustCompile(`^([0-9]+)(?: *(s|sec|second|m|min|minute|h|hour|d|day|w|week)s? ago|([dw]))$`)
	longAgo  = regexp.MustCompile(`^([0-9.hms]+)(?: ago)?$`)
	agoUnits = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}
)

// Parse reads a time or a version as people write it, and returns it as the server reads it.
func Parse(text string, now time.Time) (string, error) {
	text = strings.TrimSpace(text)
	if _, err := strconv.ParseUint(text, 10, 63); err == nil {
		return text, nil
	}
	var at time.Time
	if found := ago.FindStringSubmatch(text); found != nil {
		n, _ := strconv.Atoi(found[1])
		at = now.Add(-time.Duration(n) * agoUnits[cmp.Or(found[2], found[3])[0]])
	} else if found := longAgo.FindStringSubmatch(text); found != nil {
		if d, err := time.ParseDuration(found[1]); err == nil {
			at = now.Add(-d)
		}
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, "2006-01-02 15:04", time.DateOnly, time.TimeOnly, "15:04"} {
		parsed, err := time.ParseInLocation(layout, text, now.Location())
		if err != nil {
			continue
		}
		if at = parsed; parsed.Year() == 0 { // only a time of day: the last one
			at = time.Date(now.Year(), now.Month(), now.Day(), parsed.Hour(), parsed.Minute(), parsed.Second(), 0, now.Location())
			if at.After(now) {
				at = at.AddDate(0, 0, -1)
			}
		}
		break
	}
	if at.IsZero() {
		return "", fmt.Errorf("%q is neither a version nor a time. %s", text, strings.ReplaceAll(Help, "\n", " "))
	}
	return at.UTC().Format(time.RFC3339), nil
}

// ResourcePath is the path of a resource in a namespace; empty: in all, or outside of namespaces.
func ResourcePath(r schema.GroupVersionResource, namespace string) string {
	path := "/apis/" + r.Group + "/" + r.Version
	if r.Group == "" {
		path = "/api/" + r.Version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + r.Resource
}

// at is the beginning of the paths that answer as of a time or a version; empty for now.
func at(when string) (string, error) {
	if when == "now" {
		return "", nil
	}
	then, err := Parse(when, time.Now())
	return "/at/" + then, err
}

func unset(value string) string {
	if value == "" {
		return "(not set)"
	}
	return value
}
