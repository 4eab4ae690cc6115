package main

import (
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// registryPassword returns the password for a registry of this server: the token in the
// kubeconfig or, for a registry on loopback, the file registry-token beside the
// kubeconfig, which the server wrote. It is "" if there is none: the registry may be
// another one, or know the client's certificate. By plain HTTP no password leaves this
// machine.
func (t *target) registryPassword(to *url.URL) string {
	ip := net.ParseIP(to.Hostname())
	local := to.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	if !local && to.Scheme != "https" {
		return ""
	}
	l, err := t.load()
	if err != nil {
		return ""
	}
	if config, err := l.rest(); err == nil && config.BearerToken != "" {
		return config.BearerToken
	}
	if !local {
		return ""
	}
	files, _, err := t.files()
	if err != nil || len(files) == 0 {
		return ""
	}
	token, _ := os.ReadFile(filepath.Join(filepath.Dir(files[0]), "registry-token"))
	return strings.TrimSpace(string(token))
}

// passwordTransport logs in with every request.
type passwordTransport struct {
	http.RoundTripper
	password string
}

func (t passwordTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.SetBasicAuth("exeunt", t.password)
	return t.RoundTripper.RoundTrip(req)
}
