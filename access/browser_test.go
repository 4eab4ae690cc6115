package access

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestFromPage(t *testing.T) {
	for _, test := range []struct {
		host, origin, site string
		refused            bool
	}{
		{"127.0.0.1:5000", "", "", false},
		{"127.0.0.1:5000", "", "none", false},
		{"127.0.0.1:5000", "", "same-origin", false},
		{"127.0.0.1:5000", "http://127.0.0.1:5000", "", false},
		{"127.0.0.1:5000", "http://127.0.0.1:5000", "same-origin", false},
		{"127.0.0.1:6443", "http://localhost:8001", "same-origin", false}, // by kubectl proxy, from a page of its own
		{"127.0.0.1:5000", "http://evil.example", "", true},
		{"127.0.0.1:5000", "http://evil.example", "cross-site", true},
		{"127.0.0.1:5000", "", "cross-site", true},
		{"localhost:5000", "http://localhost:3000", "same-site", true},
		{"localhost:5000", "http://localhost:3000", "", true},
		{"localhost:5000", "null", "", true},
		{"localhost:5000", "null", "anything", true},
		{"localhost:5000", "%", "", true},
	} {
		req := httptest.NewRequest("POST", "/v2/a/blobs/uploads/", nil)
		req.Host = test.host
		if test.origin != "" {
			req.Header.Set("Origin", test.origin)
		}
		if test.site != "" {
			req.Header.Set("Sec-Fetch-Site", test.site)
		}
		if why := FromPage(req); (why != "") != test.refused {
			t.Errorf("%+v: %q", test, why)
		}
	}
}

func TestForeignHost(t *testing.T) {
	names := Hosts{"registry.example", "192.0.2.7"}
	for host, refused := range map[string]bool{
		"": false, "localhost": false, "localhost:5000": false, "LOCALHOST.:5000": false, "127.0.0.1:5000": false, "127.8.9.10": false,
		"[::1]:5000": false, "[::1]": false, "registry.example": false, "Registry.Example:5000": false, "192.0.2.7:5000": false,
		"rebind.evil.example": true, "rebind.evil.example:5000": true, "localhost.evil.example": true, "127.0.0.1.evil.example:5000": true,
		"192.0.2.8": true, "0.0.0.0:5000": true, "[::]:5000": true, "127.0.0.1@evil.example": true, "evil.example:x:y": true,
	} {
		req := httptest.NewRequest("GET", "/v2/", nil)
		req.Host = host
		if why := names.Foreign(req); (why != "") != refused {
			t.Errorf("%q: %q", host, why)
		}
	}
	req := httptest.NewRequest("GET", "/v2/", nil)
	req.Host = strings.Repeat("x", 1000) + "\n"
	if why := names.Foreign(req); len(why) > 200 || strings.Contains(why, "\n") {
		t.Errorf("the answer repeats the input: %q", why)
	}
}
