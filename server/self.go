package server

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/access"
)

// self lets parts of the server use its own API: their requests go through the same
// handlers as those of clients, over connections in memory. The client is
// access.Server.
type self struct {
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
}

func newSelf() *self { return &self{conns: make(chan net.Conn), ended: make(chan struct{})} }

// config returns the settings of a client of this server.
func (s *self) config() *rest.Config {
	return &rest.Config{
		Host:      "http://self.invalid", // never resolved
		Transport: &http.Transport{DialContext: s.dial, MaxIdleConnsPerHost: 10, DisableCompression: true},
		QPS:       -1,
		UserAgent: "exeunt",
	}
}

func (s *self) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case s.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ended:
		return nil, net.ErrClosed
	}
}

// serve answers the requests until the context ends.
func (s *self) serve(ctx context.Context, handler http.Handler) error {
	web := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: time.Minute,
		ConnContext:       func(ctx context.Context, _ net.Conn) context.Context { return access.AsServer(ctx) },
	}
	stop := context.AfterFunc(ctx, func() { _ = web.Close() })
	defer stop()
	if err := web.Serve(s); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Accept, Close and Addr make self a net.Listener.
func (s *self) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.ended:
		return nil, net.ErrClosed
	}
}

func (s *self) Close() error {
	s.once.Do(func() { close(s.ended) })
	return nil
}

func (s *self) Addr() net.Addr { return &net.UnixAddr{Name: "self", Net: "unix"} }

// replicasAnnotation of the EndpointSlice kubernetes has the processes at each address, in JSON. A
// process is alive while the database shows it (sqldb.Present), so no replica writes
// heartbeats, and a replica that is gone leaves the slice.
const replicasAnnotation = "exeunt.dev/replicas"

// roll decides which addresses stay in the slice.
type roll struct {
	own     string              // this process
	host    string              // its address
	alone   bool                // there are no other processes (SQLite)
	alive   map[string]bool     // processes that the database shows; nil if it does not show them
	missed  map[string]bool     // those that were missing in the round before
	missing map[string]bool     // those that are missing now
	at      map[string][]string // processes by address
}

// mend adds this replica, and removes those that are gone: processes that were missing in two
// rounds, since one that has just started is not shown yet. An address without
// processes is of a version that did not write them: it goes when all processes that
// are alive are in the annotation.
func (r *roll) mend(slice *discoveryv1.EndpointSlice, self discoveryv1.Endpoint) (gone []string) {
	r.at, r.missing = map[string][]string{}, map[string]bool{}
	if text := slice.Annotations[replicasAnnotation]; text != "" {
		if json.Unmarshal([]byte(text), &r.at) != nil {
			r.at = map[string][]string{} // a person wrote it
		}
	}
	if !slices.Contains(r.at[r.host], r.own) {
		r.at[r.host] = append(r.at[r.host], r.own)
	}
	if !slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return slices.Contains(e.Addresses, r.host) }) {
		slice.Endpoints = append(slice.Endpoints, self)
	}
	if r.alive != nil {
		gone = r.removeGone(slice)
	}
	text, _ := json.Marshal(r.at) // strings always marshal
	if slice.Annotations == nil {
		slice.Annotations = map[string]string{}
	}
	slice.Annotations[replicasAnnotation] = string(text)
	return gone
}

func (r *roll) removeGone(slice *discoveryv1.EndpointSlice) (gone []string) {
	known := map[string]bool{}
	for address, processes := range r.at {
		r.at[address] = slices.DeleteFunc(processes, func(id string) bool {
			known[id] = true
			if r.alive[id] || id == r.own {
				return false
			}
			r.missing[id] = true
			return r.missed[id] || r.alone
		})
	}
	all := true // processes that are alive are known
	for id := range r.alive {
		all = all && known[id]
	}
	slice.Endpoints = slices.DeleteFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
		for _, address := range e.Addresses {
			if processes, listed := r.at[address]; len(processes) > 0 || !listed && !all {
				return false
			}
		}
		gone = append(gone, e.Addresses...)
		return true
	})
	maps.DeleteFunc(r.at, func(_ string, processes []string) bool { return len(processes) == 0 })
	return gone
}
