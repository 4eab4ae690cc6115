package object

import "testing"

func TestVersionOfBody(t *testing.T) {
	for _, body := range []string{
		`{"metadata":{"name":"a"}}`,
		`{"metadata":{"name":"a","annotations":{"x":"},\"apiVersion\":\"v9\""}},"spec":{"apiVersion":"v8"}}`,
	} {
		if version, same, err := CutVersion([]byte(body)); version != "" || string(same) != body || err != nil {
			t.Errorf("CutVersion of %s = %q, %s, %v; want no version", body, version, same, err)
		}
		marked, err := WithVersion([]byte(body), "v2")
		if err != nil {
			t.Fatal(err)
		}
		if !MayHaveVersion(marked) {
			t.Errorf("MayHaveVersion misses %s", marked)
		}
		if _, err := ParseMeta(marked); err != nil {
			t.Errorf("metadata of %s: %v", marked, err)
		}
		version, unmarked, err := CutVersion(marked)
		if version != "v2" || string(unmarked) != body || err != nil {
			t.Errorf("CutVersion of %s = %q, %s, %v", marked, version, unmarked, err)
		}
	}
	for _, body := range []string{``, `{}`, `{"metadata":{"name":"a"},"apiVersion":"v2`} {
		if version, _, err := CutVersion([]byte(body)); err == nil {
			t.Errorf("CutVersion of %s = %q, want an error", body, version)
		}
	}
}
