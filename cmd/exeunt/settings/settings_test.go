package settings

import "testing"

func TestParseSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "12": 12, "-1": -1, "12B": 12, "1k": 1000, "1K": 1000, "1KB": 1000, "1Ki": 1024, "10GB": 10_000_000_000, "64MiB": 64 << 20, "2T": 2_000_000_000_000, "3TiB": 3 << 40,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%s is %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "GB", "1.5GB", "10 GB", "10GBB", "10iB", "10Bi", "10MG", "10X", "9999999999TB", "0x10"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}

// TestMask: a value that is no URL, but looks like one, may have a password anywhere.
func TestMask(t *testing.T) {
	if got := mask("postgres://a:b@[::1"); got != "(hidden: not a URL)" {
		t.Errorf("a broken URL is shown as %q", got)
	}
}
