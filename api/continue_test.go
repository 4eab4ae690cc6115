package api

import (
	"encoding/base64"
	"testing"

	"github.com/exeunt/exeunt/object"
)

func TestPositionRoundTrip(t *testing.T) {
	want := position{Version: positionVersion, Revision: 42, Namespace: "shop", Name: "web"}
	got, err := parsePosition(want.String())
	if err != nil || got != want {
		t.Errorf("parsePosition = %+v, %v; want %+v", got, err, want)
	}
}

func TestParsePositionRefusesForgedTokens(t *testing.T) {
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	for name, token := range map[string]string{
		"not base64":      "%%%",
		"not JSON":        encode("hello"),
		"another version": encode(`{"v":"meta.k8s.io/v1","rv":1,"start":"a"}`),
		"no revision":     encode(`{"v":"exeunt/v1","name":"a"}`),
		"negative":        encode(`{"v":"exeunt/v1","rv":-1,"name":"a"}`),
		"no name":         encode(`{"v":"exeunt/v1","rv":1}`),
		"huge":            encode(`{"v":"exeunt/v1","rv":1,"name":"` + string(make([]byte, 4000)) + `"}`),
		"NUL":             encode(`{"v":"exeunt/v1","rv":1,"ns":"a\u0000","name":"a"}`),
		"overflow":        encode(`{"v":"exeunt/v1","rv":99999999999999999999,"name":"a"}`),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parsePosition(token); !object.Is(err, object.BadRequest) {
				t.Errorf("err = %v, want a BadRequest", err)
			}
		})
	}
}

func FuzzParsePosition(f *testing.F) {
	f.Add(position{Revision: 1, Name: "a"}.String())
	f.Add("")
	f.Fuzz(func(t *testing.T, token string) {
		p, err := parsePosition(token)
		if err == nil && (p.Revision <= 0 || p.Name == "") {
			t.Errorf("accepted %+v", p)
		}
	})
}
