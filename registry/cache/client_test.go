package cache

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exeunt/exeunt/registry"
)

// TestAbandoned: a request whose clients have left gives up its wait for a slot; a request that has a slot, or finds one free, goes on.
func TestAbandoned(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	base, _ := url.Parse(server.URL)
	u := newUpstream(spec{base: base}, &Options{Now: time.Now, Patience: time.Hour}, &prometheus.CounterVec{})
	abandoned := make(chan struct{})
	ask := func() error {
		_, err := u.Ask(t.Context(), http.MethodGet, registry.Request{Kind: registry.BlobGet, Repository: "hub/x", Abandoned: abandoned})
		return err
	}
	close(abandoned)
	var refused *registry.Error
	if err := ask(); !errors.As(err, &refused) || refused.Code != registry.BlobUnknown {
		t.Errorf("with a free slot: %v", err)
	}
	for range mostFetches {
		u.slots <- struct{}{}
	}
	if err := ask(); !errors.Is(err, registry.ErrAbandoned) {
		t.Errorf("without a free slot: %v", err)
	}
	if len(u.slots) != mostFetches {
		t.Errorf("%d slots are taken", len(u.slots))
	}
}

// TestDial: an upstream elsewhere cannot lead to services of this machine; one that is here can.
func TestDial(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	at := strings.TrimPrefix(server.URL, "http://")
	_, port, _ := strings.Cut(at, ":")
	for base, reaches := range map[string]bool{"https://registry.example": false, "http://127.0.0.1:1": true, "http://localhost": true} {
		u, _ := url.Parse(base)
		dial := newUpstream(spec{base: u}, &Options{Now: time.Now}, &prometheus.CounterVec{}).http.Transport.(*http.Transport).DialContext
		for _, address := range []string{at, "localhost:" + port, "0.0.0.0:" + port, "[::ffff:127.0.0.1]:" + port} {
			conn, err := dial(t.Context(), "tcp", address)
			if (err == nil) != reaches {
				t.Errorf("%s dials %s: %v", base, address, err)
			}
			if err == nil {
				conn.Close()
			} else if !strings.Contains(err.Error(), "is not an address of an upstream") {
				t.Error(err)
			}
		}
		for _, address := range []string{"169.254.169.254:80", "[fe80::1%25lo]:80", "[::ffff:169.254.169.254]:80"} {
			if _, err := dial(t.Context(), "tcp", address); err == nil || strings.Contains(err.Error(), "timeout") {
				t.Errorf("%s dials %s: %v", base, address, err)
			}
		}
	}
}
