package registrytoken

import (
	"fmt"
	"strings"
	"testing"

	v1 "github.com/exeunt/exeunt/registry/v1"
)

func TestParseScopes(t *testing.T) {
	for _, c := range []struct {
		scopes []string
		want   string // what is asked for; "error"
	}{
		{nil, ""},
		{[]string{""}, ""},
		{[]string{"repository:shop/web:pull"}, "repository:shop/web:pull"},
		{[]string{"repository:shop/web:push,pull"}, "repository:shop/web:pull,push"},
		{[]string{"repository:shop/web:pull", "repository:base:pull"}, "repository:shop/web:pull repository:base:pull"},
		{[]string{"repository:shop/web:pull repository:base:pull"}, "repository:shop/web:pull repository:base:pull"},
		{[]string{"repository:shop/web:pull", "repository:shop/web:push"}, "repository:shop/web:pull,push"},
		{[]string{"repository:shop/web:*"}, "repository:shop/web:pull,push,delete"},
		{[]string{"repository:shop/web:pull,pull,fly"}, "repository:shop/web:pull"},
		{[]string{"repository:shop/web:fly"}, ""},
		{[]string{"registry:catalog:*"}, "registry:catalog:*"},
		{[]string{"registry:catalog:pull"}, ""},
		{[]string{"registry:other:*"}, ""},
		{[]string{"repository(plugin):shop/web:pull"}, ""},
		{[]string{"sandbox:x:run"}, ""},
		// Tricks.
		{[]string{"repository:a/../b:pull"}, "error"},
		{[]string{"repository:../b:pull"}, "error"},
		{[]string{"repository:a//b:pull"}, "error"},
		{[]string{"repository:/a:pull"}, "error"},
		{[]string{"repository:a/:pull"}, "error"},
		{[]string{"repository:Shop/web:pull"}, "error"},
		{[]string{"repository:*:pull"}, "error"},
		{[]string{"repository:shop/*:pull"}, "error"},
		{[]string{"repository:a%2fb:pull"}, "error"},
		{[]string{"repository:a\x00:pull"}, "error"},
		{[]string{"repository::pull"}, "error"},
		{[]string{"repository:a:"}, "error"},
		{[]string{"repository:a:pull,"}, "error"},
		{[]string{"repository:a:PULL"}, "error"},
		{[]string{"Repository:a:pull"}, "error"},
		{[]string{"repository:host:5000/a:pull"}, "error"},
		{[]string{"repository:a"}, "error"},
		{[]string{"repository:a:pull  repository:b:pull"}, "error"},
		{[]string{"repository:a:pull\nrepository:b:pull"}, "error"},
		{[]string{":::"}, "error"},
		{[]string{"repository:" + strings.Repeat("a", 256) + ":pull"}, "error"},
		{[]string{"sandbox:" + strings.Repeat("x", maxScope) + ":run"}, "error"},
		{[]string{"sandbox::run"}, "error"},
		{[]string{"repository:a:" + strings.Repeat("pull,", 7) + "pull"}, "repository:a:pull"},
		{[]string{strings.Repeat("repository:a:pull ", 31) + "repository:a:pull"}, "repository:a:pull"},
		{[]string{"repository:a:" + strings.Repeat("pull,", 8) + "pull"}, "error"},
		{[]string{strings.Repeat("repository:a:pull ", 32) + "repository:a:pull"}, "error"},
	} {
		got, err := ParseScopes(c.scopes)
		text := strings.Trim(fmt.Sprint(got), "[]")
		if err != nil {
			text = "error"
		}
		if text != c.want {
			t.Errorf("%q: %s (%v), want %s", c.scopes, text, err, c.want)
		}
	}
}

// FuzzScope: whatever a client asks for, a scope names a repository that the router can
// name, and known actions; and it reads the same when it is written again.
func FuzzScope(f *testing.F) {
	f.Add("repository:shop/web:pull,push registry:catalog:*")
	f.Add("repository:a/../b:*")
	f.Add("repository(plugin):x:pull")
	f.Fuzz(func(t *testing.T, scope string) {
		all, err := ParseScopes([]string{scope})
		if err != nil {
			return
		}
		if len(all) > maxScopes {
			t.Fatalf("%d scopes", len(all))
		}
		var again []string
		for _, a := range all {
			if a.Type == "repository" && !v1.ValidPath(a.Name) || a.Type != "repository" && a.String() != "registry:catalog:*" {
				t.Errorf("accepted %q", a)
			}
			for _, action := range a.Actions {
				if a.Type == "repository" && action != Pull && action != Push && action != Delete {
					t.Errorf("accepted action %q", action)
				}
			}
			again = append(again, a.String())
		}
		if reread, err := ParseScopes(again); err != nil || fmt.Sprint(reread) != fmt.Sprint(all) {
			t.Errorf("%v reads as %v, %v", all, reread, err)
		}
	})
}
