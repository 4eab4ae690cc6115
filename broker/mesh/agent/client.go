package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/internal/durable"
	"github.com/exeunt/exeunt/internal/lockfile"
	"github.com/exeunt/exeunt/internal/task"
)

const (
	callTimeout    = 15 * time.Second
	connectTimeout = 5 * time.Second
	maxAnswer      = 16 << 20

	firstPause, lastPause = 500 * time.Millisecond, 15 * time.Second
)

// client calls servers that share a database: one of them as long as it
// answers, then the next. All servers know the same tokens and nodes.
type client struct {
	servers    []server     // set once
	credential string       // set once, when it is known
	current    atomic.Int64 // index of the server in use
}

type server struct {
	url  string
	http *http.Client
}

// add adds a server. Its connect timeout is short, because a dead machine does
// not answer at all.
func (c *client) add(url string, config *tls.Config) {
	c.servers = append(c.servers, server{strings.TrimSuffix(url, "/"), &http.Client{Transport: &http.Transport{
		TLSClientConfig: config, Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, DialContext: (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
	}}})
}

// leave switches to the next server, unless another call has switched since
// this one began.
func (c *client) leave(called int64) {
	c.current.CompareAndSwap(called, (called+1)%int64(len(c.servers)))
}

// refusal is a refusal by the server.
type refusal struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func (r *refusal) Error() string { return r.Message }

// refusedFor reports whether the server refused for this reason.
func refusedFor(err error, reason string) bool {
	var r *refusal
	return errors.As(err, &r) && r.Reason == reason
}

// final reports whether a retry is useless: the server has refused, or is not
// the one that we trust.
func final(err error) bool {
	var r *refusal
	if errors.As(err, &r) {
		return r.Code < 500 && r.Code != http.StatusTooManyRequests
	}
	return untrusted(err)
}

// call posts to a path, with an optional body, and decodes the answer into
// into, if given.
func (c *client) call(ctx context.Context, path string, send any, into ...any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var body io.Reader
	if send != nil {
		data, err := json.Marshal(send)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	return c.do(ctx, http.MethodPost, path, body, into...)
}

func (c *client) do(ctx context.Context, method, path string, body io.Reader, into ...any) error {
	s := c.servers[c.current.Load()]
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, body)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.credential != "" {
		req.Header.Set("Authorization", "Bearer "+c.credential)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		r := &refusal{}
		if json.Unmarshal(data, r) != nil || r.Message == "" {
			r.Message = fmt.Sprintf("%s answered %s", path, resp.Status)
		}
		r.Code = resp.StatusCode // the status of a proxy counts too
		return r
	}
	for _, v := range into {
		if err := json.Unmarshal(data, v); err != nil {
			return fmt.Errorf("read the answer of %s: %w", path, err)
		}
	}
	return nil
}

// retry repeats a call until it succeeds, is refused for good, or ctx ends. It
// tries all servers before it waits. It logs the first failure of each server,
// and the next one.
func (c *client) retry(ctx context.Context, log *slog.Logger, what string, call func(context.Context) error) error {
	pause, distrusted := firstPause, 0
	for failures := 1; ; failures++ {
		called := c.current.Load()
		err := call(ctx)
		if untrusted(err) {
			distrusted++
		}
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case final(err) && (!untrusted(err) || distrusted == len(c.servers)):
			return err
		}
		c.leave(called)
		if failures <= len(c.servers) {
			log.Warn("the server does not answer; trying again", "what", what, "server", c.servers[called].url, "next", c.servers[c.current.Load()].url, "error", err)
		}
		if failures%len(c.servers) != 0 {
			continue
		}
		if !task.Sleep(ctx, jitter(pause)) {
			return err
		}
		pause, distrusted = min(2*pause, lastPause), 0
	}
}

// jitter spreads the retries of the nodes of a mesh.
func jitter(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2) }

// The files in an agent's directory, readable by its owner only.
const (
	stateFile = "node.json"
	peersFile = "peers.json"
	lockFile  = "lock"
)

// state is the durable state of an agent.
type state struct {
	Server string `json:"server"` // one URL, or several separated by commas
	// TokenID is the public part of the token of this enrolment.
	TokenID string `json:"tokenID"`
	// Nonce and Secret are stored before the agent enrols, so that it can
	// repeat the same request after any crash.
	Nonce  string `json:"nonce"`
	Secret string `json:"secret"`
	Name   string `json:"name"`
	// UID is the node's uid on the server. Empty means not enrolled, or the answer
	// is not known yet.
	UID     string `json:"uid,omitempty"`
	Project string `json:"project,omitempty"`
	// Authority is the CA certificate that matched --ca-hash, in PEM.
	Authority string `json:"authority,omitempty"`
	// Leaving: the node is leaving the mesh.
	Leaving bool `json:"leaving,omitempty"`
}

// directory holds the agent's files. A lock admits one agent at a time.
type directory struct {
	dir   string
	lock  *os.File
	state state
}

// openDirectory makes or opens a directory and reads its state.
func openDirectory(dir string) (*directory, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the node's directory: %w", err)
	}
	d := &directory{dir: dir}
	var err error
	if d.lock, err = os.OpenFile(d.path(lockFile), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, fmt.Errorf("lock the node's directory: %w", err)
	}
	if locked, err := lockfile.TryLock(d.lock); err != nil {
		d.close()
		return nil, fmt.Errorf("lock the node's directory: %w", err)
	} else if !locked {
		d.close()
		return nil, fmt.Errorf("another agent uses %s; give this one its own with --state", dir)
	}
	data, err := os.ReadFile(d.path(stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &d.state)
	}
	if err != nil {
		d.close()
		return nil, fmt.Errorf("read %s: %w", d.path(stateFile), err)
	}
	return d, nil
}

func (d *directory) path(name string) string { return filepath.Join(d.dir, name) }

// close releases the lock.
func (d *directory) close() { _ = d.lock.Close() }

// save makes the state durable.
func (d *directory) save() error { return writeFile(d.path(stateFile), d.state) }

// savePeers replaces the file with the list of peers.
func (d *directory) savePeers(peers []v1alpha1.Peer) error {
	return writeFile(d.path(peersFile), struct {
		Project string          `json:"project"`
		Node    string          `json:"node"`
		Peers   []v1alpha1.Peer `json:"peers"`
	}{d.state.Project, d.state.Name, append([]v1alpha1.Peer{}, peers...)})
}

// forget removes the files that a node that has left does not need.
func (d *directory) forget() error {
	for _, name := range []string{peersFile, stateFile} {
		if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("clean up: %w", err)
		}
	}
	return nil
}

// writeFile replaces a file atomically and durably: a reader sees the old or
// the new content, also after a power cut.
func writeFile(path string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.WriteFile(path, append(data, '\n'), nil); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
