package past

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	v1 "github.com/exeunt/exeunt/deletion/v1"
)

// NewHistory is the command history.
func NewHistory(s Session) *cobra.Command {
	var diff bool
	var when string
	most := 20
	cmd := &cobra.Command{
		Use:   "history KIND/NAME",
		Short: "Show the versions of an object: what changed, when, and who did it",
		Long: `Show the versions of an object, the newest first: when each was made, by which user and
client, in which request, and what it changed. Those of removed objects of the same name are
among them. With --at, show the object as it was. It needs the verb history on the object.

` + Help,
		Example: `  exeunt history deployment/web -n shop
  exeunt history deployment/web --diff
  exeunt history configmap/settings --at "2 hours ago"`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := s.Find(args)
			if err != nil {
				return err
			}
			if when != "" {
				prefix, err := at(when)
				var then map[string]any
				if err == nil {
					err = s.Send(cmd.Context(), http.MethodGet, prefix+path, nil, &then)
				}
				if err != nil {
					return err
				}
				return s.Print(cmd.OutOrStdout(), then, nil)
			}
			all, err := versions(cmd.Context(), s, path, most)
			if err != nil {
				return err
			}
			if diff && !s.Formatted() {
				return s.Print(cmd.OutOrStdout(), all, func(p Printer) { writeDiffs(p, all) })
			}
			return s.List(cmd.OutOrStdout(), "ObjectVersionList", items(all), "the history has no version of it", "VERSION\tAGE\tEVENT\tUSER\tCLIENT\tREQUEST\tWHAT", func(i int) []any {
				v := all[i]
				return []any{v.Version, ageOf(v), string(v.Event), v.User, program(v.Client), v.RequestID, summary(v)}
			})
		},
	}
	s.Flags(cmd)
	cmd.Flags().BoolVar(&diff, "diff", false, "show all that each version changed")
	cmd.Flags().StringVar(&when, "at", "", "show the object as it was at a version or a time")
	cmd.Flags().IntVar(&most, "most", most, "how many versions to show; 0 means all")
	return cmd
}

func items[T any](all []T) []any {
	out := make([]any, len(all))
	for i := range all {
		out[i] = all[i]
	}
	return out
}

// program is the first word of a User-Agent.
func program(client string) string {
	first, _, _ := strings.Cut(client, " ")
	return first
}

// versions reads the newest versions of an object; most 0: all.
func versions(ctx context.Context, s Session, path string, most int) (all []v1.ObjectVersion, err error) {
	query := map[string]string{"limit": "500"}
	if most > 0 {
		query["limit"] = strconv.Itoa(most)
	}
	for {
		var page v1.ObjectVersionList
		if err := s.Send(ctx, http.MethodGet, "/at/versions"+path, query, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if query["continue"] = page.Continue; page.Continue == "" || most > 0 && len(all) >= most {
			if most > 0 {
				all = all[:min(most, len(all))]
			}
			return all, nil
		}
	}
}

func writeDiffs(p Printer, all []v1.ObjectVersion) {
	for _, v := range all {
		p.Line("%s %s %s ago by %s (%s, %s, request %s)", v.Version, string(v.Event), ageOf(v), v.User, v.Client, v.Verb, v.RequestID)
		writeChanges(p, v.Changes)
	}
}

func writeChanges(p Printer, changes []v1.Change) {
	for _, c := range changes {
		p.Line("  %s: %s → %s", c.Field, unset(c.Was), unset(c.Is))
	}
}

func ageOf(v v1.ObjectVersion) string {
	if v.Time == nil {
		return "?"
	}
	return duration.HumanDuration(time.Since(v.Time.Time))
}

// summary is one line that says what a version changed: what people write before metadata and status.
func summary(v v1.ObjectVersion) string {
	if len(v.Changes) == 0 {
		return ""
	}
	rank := func(c v1.Change) int {
		return slices.Index([]string{"metadata", "status"}, strings.SplitN(c.Field, ".", 2)[0])
	}
	first := slices.MinFunc(v.Changes, func(a, b v1.Change) int { return cmp.Compare(rank(a), rank(b)) })
	text := fmt.Sprintf("%s: %s → %s", first.Field, short(unset(first.Was)), short(unset(first.Is)))
	if more := len(v.Changes) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

func short(text string) string {
	if runes := []rune(text); len(runes) > 40 {
		return string(runes[:40]) + "…"
	}
	return text
}

// NewBlame is the command blame.
func NewBlame(s Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "blame KIND/NAME",
		Short: "Show who set each field of an object last, when, and in which request",
		Long: `Show for each field of an object who gave it its value: the user and client, when, and in
which request. It reads the versions of the object. A field without a user had its value in
the oldest version that the history has.`,
		Example: "  exeunt blame deployment/web -n shop",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := s.Find(args)
			if err != nil {
				return err
			}
			all, err := versions(cmd.Context(), s, path, 0)
			if err != nil {
				return err
			}
			fields, err := blame(all)
			if err != nil {
				return err
			}
			return s.List(cmd.OutOrStdout(), "FieldList", items(fields), "the object does not exist, or the history has no version of it", "FIELD\tVALUE\tVERSION\tAGE\tUSER\tCLIENT\tREQUEST", func(i int) []any {
				f := fields[i]
				return []any{f.Field, short(f.Value), f.Version, f.age, f.User, program(f.Client), f.RequestID}
			})
		},
	}
	s.Flags(cmd)
	return cmd
}

// blamed is a field of an object, and the version that gave it its value.
type blamed struct {
	Field     string `json:"field"`
	Value     string `json:"value"`
	Version   string `json:"version,omitempty"`
	Time      string `json:"time,omitempty"`
	User      string `json:"user,omitempty"`
	Client    string `json:"client,omitempty"`
	RequestID string `json:"requestID,omitempty"`
	age       string
}

// blame finds for each field of the newest version which one gave it its value. versions are the newest first.
func blame(versions []v1.ObjectVersion) ([]blamed, error) {
	fields := map[string]blamed{}
	for i := len(versions) - 1; i >= 0; i-- {
		v := versions[i]
		now := map[string]string{}
		if v.Object != nil {
			var object map[string]any
			if err := json.Unmarshal(v.Object.Raw, &object); err != nil {
				return nil, fmt.Errorf("read version %s: %w", v.Version, err)
			}
			if m, ok := object["metadata"].(map[string]any); ok {
				delete(m, "managedFields")
				delete(m, "resourceVersion")
				delete(m, "generation")
			}
			leaves(now, "", object)
		}
		maps.DeleteFunc(fields, func(field string, _ blamed) bool { _, has := now[field]; return !has })
		by := blamed{Version: v.Version, User: v.User, Client: v.Client, RequestID: v.RequestID, age: ageOf(v)}
		if v.Time != nil {
			by.Time = v.Time.UTC().Format(time.RFC3339)
		}
		if i == len(versions)-1 && v.Event != v1.VersionCreated {
			by = blamed{age: "before"} // who set what it had is not known any more
		}
		for field, value := range now {
			if was, had := fields[field]; !had || was.Value != value {
				by.Field, by.Value = field, value
				fields[field] = by
			}
		}
	}
	return slices.SortedFunc(maps.Values(fields), func(a, b blamed) int { return strings.Compare(a.Field, b.Field) }), nil
}

// leaves collects the fields of a value that have no fields of their own. Elements of a list are named by their name, as
// far as they have one, so that a new first element does not change all others.
func leaves(into map[string]string, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			leaves(into, strings.TrimPrefix(path+"."+name, "."), field)
		}
		if len(v) > 0 {
			return
		}
	case []any:
		for i, element := range v {
			name := strconv.Itoa(i)
			if fields, ok := element.(map[string]any); ok {
				for _, key := range []string{"name", "type", "uid"} {
					if text, ok := fields[key].(string); ok {
						name = text
						break
					}
				}
			}
			leaves(into, path+"["+name+"]", element)
		}
		if len(v) > 0 {
			return
		}
	}
	if text, err := json.Marshal(value); err == nil {
		into[path] = string(text)
	}
}
