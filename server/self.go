package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

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
		Transport: &http.Transport{DialContext: s.dial, MaxIdleConnsPerHost: 10},
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
