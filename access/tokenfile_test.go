package access

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/exeunt/exeunt/access/v1"
)

func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# people\nsha256:" + v1.Hash("secret") + `,jane,7,"dev,ops"` + "\n")
	f, err := openTokenFile(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	response, ok, err := f.AuthenticateToken(t.Context(), "secret")
	if err != nil || !ok || response.User.GetName() != "jane" || response.User.GetUID() != "7" || strings.Join(response.User.GetGroups(), " ") != "dev ops" {
		t.Errorf("got %+v %v %v", response, ok, err)
	}
	for _, wrong := range []string{"", "Secret", "secret ", v1.Hash("secret"), "sha256:" + v1.Hash("secret")} {
		if _, ok, _ := f.AuthenticateToken(t.Context(), wrong); ok {
			t.Errorf("%q is accepted", wrong)
		}
	}
	if all, err := OpenTokens(t.Context(), TokenOptions{File: path}, slog.New(slog.DiscardHandler)); err != nil || len(all) != 1 {
		t.Errorf("the file is one of %d sources, %v", len(all), err)
	}
	// A change is read within a second; a broken file leaves what was valid.
	write("sha256:" + v1.Hash("next") + ",joe,8\n")
	f.checked = time.Time{}
	if _, ok, _ := f.AuthenticateToken(t.Context(), "secret"); ok {
		t.Error("a removed token is accepted")
	}
	if _, ok, _ := f.AuthenticateToken(t.Context(), "next"); !ok {
		t.Error("a new token is refused")
	}
	if response, ok, _ := f.AuthenticateToken(t.Context(), "next"); !ok || len(response.User.GetGroups()) > 0 {
		t.Errorf("the groups of a line without groups: %+v", response)
	}
	write("sha256:" + v1.Hash("next") + ",joe,8,\n")
	f.checked = time.Time{}
	if response, ok, _ := f.AuthenticateToken(t.Context(), "next"); !ok || len(response.User.GetGroups()) > 0 {
		t.Errorf("the groups of a line with none: %+v", response)
	}
	write("rubbish\n")
	for _, file := range []string{path, path + "-missing"} {
		if all, err := OpenTokens(t.Context(), TokenOptions{File: file}, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("a broken file, or none, is one of %d sources", len(all))
		}
	}
	f.checked = time.Time{}
	if _, ok, _ := f.AuthenticateToken(t.Context(), "next"); !ok {
		t.Error("a broken file revoked all tokens")
	}
}

// TestTokenFileRefuses: the error says what is wrong, and never shows a token.
func TestTokenFileRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"hunter2,jane,7\n":                                 "must be hashed",
		"sha256:" + v1.Hash("a")[:62] + ",jane,7\n":        "must be hashed",
		"sha256:" + strings.Repeat("z", 64) + ",jane,7\n":  "must be hashed",
		"sha256:abc,jane,7\n":                              "must be hashed",
		"sha256:" + v1.Hash("a") + ",,7\n":                 "want sha256:HEX,USER,UID",
		"sha256:" + v1.Hash("a") + "\n":                    "want sha256:HEX,USER,UID",
		"sha256:" + v1.Hash("a") + ",\"hunter2\n":          "is not CSV",
		strings.Repeat("sha256:"+v1.Hash("a")+",b,c\n", 2): "the token of another entry",
		"sha256:" + v1.Hash("a") + ",b,c\nsha256:" + strings.ToUpper(v1.Hash("a")) + ",d,e\n": "the token of another entry",
		"sha256:" + v1.Hash("a") + ",b,c,d,e\n":                                               "want sha256:HEX,USER,UID",
	} {
		if _, err := parseTokens([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParseTokens(f *testing.F) {
	f.Add([]byte("sha256:" + v1.Hash("secret") + `,jane,7,"dev,ops"` + "\n"))
	f.Add([]byte("a,b,c\n\"\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		users, err := parseTokens(data)
		for hash, u := range users {
			if err != nil || len(hash) != 64 || u.Name == "" {
				t.Errorf("%q: %v %v", hash, u, err)
			}
		}
	})
}
