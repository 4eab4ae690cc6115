package past

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/exeunt/exeunt/deletion/v1"
)

// TestParse: a version or a time, as people write it, becomes what the server reads.
func TestParse(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 17, 10, 30, 0, 0, time.FixedZone("here", 3600))
	for text, want := range map[string]string{
		"4711": "4711", "2026-11-17T10:00:00Z": "2026-11-17T10:00:00Z", "2 hours ago": "2026-11-17T07:30:00Z", "1 day ago": "2026-11-16T09:30:00Z",
		"90m": "2026-11-17T08:00:00Z", "90 min ago": "2026-11-17T08:00:00Z", "2d": "2026-11-15T09:30:00Z", "1 h ago": "2026-11-17T08:30:00Z",
		"1h30m ago": "2026-11-17T08:00:00Z", "10:00": "2026-11-17T09:00:00Z", "11:00:30": "2026-11-16T10:00:30Z",
		"2026-11-16 23:15": "2026-11-16T22:15:00Z", "2026-11-16": "2026-11-15T23:00:00Z", "2 weeks ago": "2026-11-03T09:30:00Z",
	} {
		if got, err := Parse(text, now); err != nil || got != want {
			t.Errorf("%q is %q (%v), want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "noon", "-1", "2 hours", "../x", "h"} {
		if got, err := Parse(text, now); err == nil {
			t.Errorf("%q is %q", text, got)
		}
	}
}

// TestBlame: each field is blamed on the version since which it has its value, also in lists whose elements move, and what
// the oldest known version had on none.
func TestBlame(t *testing.T) {
	t.Parallel()
	version := func(n int, event v1.VersionEvent, object string) v1.ObjectVersion {
		v := v1.ObjectVersion{Version: fmt.Sprint(n), Event: event, User: fmt.Sprint("user-", n)}
		if object != "" {
			v.Object = &runtime.RawExtension{Raw: json.RawMessage(object)}
		}
		return v
	}
	created := version(1, v1.VersionCreated, `{"metadata":{"name":"a","resourceVersion":"1"},"data":{"k":"1","l":"1"},"list":[{"name":"x","v":1}]}`)
	changed := version(2, v1.VersionChanged, `{"metadata":{"name":"a","resourceVersion":"2"},"data":{"k":"2","m":"1"},"list":[{"name":"w","v":1},{"name":"x","v":1}]}`)
	back := version(3, v1.VersionChanged, `{"metadata":{"name":"a","resourceVersion":"3"},"data":{"k":"1","l":"1","m":"1"},"list":[{"name":"x","v":1}]}`)
	for name, c := range map[string]struct {
		versions []v1.ObjectVersion
		want     string
	}{
		"all":     {[]v1.ObjectVersion{back, changed, created}, "data.k:3 data.l:3 data.m:2 list[x].name:1 list[x].v:1 metadata.name:1 "},
		"cut":     {[]v1.ObjectVersion{back, changed}, "data.k:3 data.l:3 data.m: list[x].name: list[x].v: metadata.name: "},
		"removed": {[]v1.ObjectVersion{version(4, v1.VersionRemoved, ""), back, changed, created}, ""},
		"again":   {[]v1.ObjectVersion{version(5, v1.VersionCreated, `{"data":{"k":"1"}}`), version(4, v1.VersionRemoved, ""), created}, "data.k:5 "},
	} {
		fields, err := blame(c.versions)
		got := ""
		for _, f := range fields {
			got += f.Field + ":" + f.Version + " "
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %q (%v), want %q", name, got, err, c.want)
		}
	}
}
