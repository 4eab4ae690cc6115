package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestOutputEverywhere: every command takes -o, with json and yaml.
func TestOutputEverywhere(t *testing.T) {
	each(newRoot(), func(c *cobra.Command) {
		flag := c.Flags().Lookup("output")
		switch {
		case !c.Runnable() || c.HasSubCommands() && c.Name() != "bench" || c.Name() == "help" || c.HasParent() && c.Parent().Name() == "completion":
		case flag == nil:
			t.Errorf("%s has no -o", c.CommandPath())
		case !strings.Contains(flag.Usage, "json, yaml") || flag.Shorthand != "o":
			t.Errorf("%s: -o is %q", c.CommandPath(), flag.Usage)
		}
	})
}

func TestList(t *testing.T) {
	type thing struct {
		Name string `json:"name"`
	}
	for _, test := range []struct {
		format string
		names  []string
		want   string
	}{
		{"", nil, "none\n"},
		{"", []string{"a", "long"}, "NAME   LENGTH\na      1\nlong   4\n"},
		{"name", nil, ""},
		{"name", []string{"a", "b"}, "thing/a\nthing/b\n"},
		{"json", nil, "{\n  \"apiVersion\": \"example/v1\",\n  \"items\": [],\n  \"kind\": \"ThingList\",\n  \"metadata\": {}\n}\n"},
		{"json", []string{"a"}, "{\n  \"apiVersion\": \"example/v1\",\n  \"items\": [\n    {\n      \"name\": \"a\"\n    }\n  ],\n  \"kind\": \"ThingList\",\n  \"metadata\": {}\n}\n"},
		{"yaml", nil, "apiVersion: example/v1\nitems: []\nkind: ThingList\nmetadata: {}\n"},
		{"yaml", []string{"a", "b"}, "apiVersion: example/v1\nitems:\n- name: a\n- name: b\nkind: ThingList\nmetadata: {}\n"},
	} {
		var b strings.Builder
		var things []thing
		for _, name := range test.names {
			things = append(things, thing{name})
		}
		d := listed("example/v1", "ThingList", things, "none", "NAME\tLENGTH", func(t thing) (string, []any) { return "thing/" + t.Name, []any{t.Name, len(t.Name)} })
		if err := (&output{format: test.format}).print(&b, d); err != nil || b.String() != test.want {
			t.Errorf("%s of %v: %v\n%s\nwant\n%s", test.format, test.names, err, b.String(), test.want)
		}
	}
}

// brokenPipe refuses the second write.
type brokenPipe struct{ writes int }

var errPipe = errors.New("broken pipe")

func (p *brokenPipe) Write(b []byte) (int, error) {
	if p.writes++; p.writes > 1 {
		return 0, errPipe
	}
	return len(b), nil
}

// TestListStops: after a failed write the list ends with that error.
func TestListStops(t *testing.T) {
	for _, format := range []string{"", "name"} {
		pipe := &brokenPipe{}
		d := listed("v1", "List", []int{1, 2, 3}, "", "N\tN", func(n int) (string, []any) { return "a", []any{n, n} })
		if err := (&output{format: format}).print(pipe, d); !errors.Is(err, errPipe) || pipe.writes > 2 {
			t.Errorf("%q: %v after %d writes", format, err, pipe.writes)
		}
	}
}

func TestCounted(t *testing.T) {
	for _, test := range []struct {
		n    int
		noun string
		want string
	}{
		{1, "object", "1 object"},
		{0, "object", "0 objects"},
		{2, "repository", "2 repositories"},
		{1, "repository", "1 repository"},
		{2, "key", "2 keys"},
		{3, "day", "3 days"},
	} {
		if got := counted(test.n, test.noun); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestObjectName(t *testing.T) {
	for want, args := range map[string][3]string{
		"configmap/a":         {"v1", "ConfigMap", "a"},
		"deployment.apps/web": {"apps/v1", "Deployment", "web"},
	} {
		if got := objectName(args[0], args[1], args[2]); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
