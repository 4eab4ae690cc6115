package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

const (
	callTimeout = 15 * time.Second
	maxAnswer   = 16 << 20

	firstPause, lastPause = 500 * time.Millisecond, 15 * time.Second
)

// client calls one server.
type client struct {
	server     string
	credential string // set once, when it is known
	http       *http.Client
}

func newClient(server string, config *tls.Config) *client {
	return &client{server: strings.TrimSuffix(server, "/"), http: &http.Client{Transport: &http.Transport{
		TLSClientConfig: config, Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
	}}}
}

// refusal is the server's no.
type refusal struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func (r *refusal) Error() string { return r.Message }

// refusedFor says whether the server said no for this reason.
func refusedFor(err error, reason string) bool {
	var r *refusal
	return errors.As(err, &r) && r.Reason == reason
}

// final says whether asking again can change nothing: the server has said no, or
// is not the one that we trust.
func final(err error) bool {
	var r *refusal
	if errors.As(err, &r) {
		return r.Code < 500 && r.Code != http.StatusTooManyRequests
	}
	return untrusted(err)
}

// call posts to a path, with a body if there is one to send, and reads the
// answer if somebody wants it.
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
	req, err := http.NewRequestWithContext(ctx, method, c.server+path, body)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.credential != "" {
		req.Header.Set("Authorization", "Bearer "+c.credential)
	}
	resp, err := c.http.Do(req)
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
		r.Code = resp.StatusCode // what a proxy says counts too
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
// tells the log of the first failure, and of the last.
func (c *client) retry(ctx context.Context, log *slog.Logger, what string, call func(context.Context) error) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := call(ctx)
		if err == nil || final(err) {
			return err
		}
		if ctx.Err() != nil {
			return err
		}
		if pause == firstPause {
			log.Warn("the server does not answer; trying again", "what", what, "error", err)
		}
		if !sleep(ctx, jitter(pause)) {
			return err
		}
	}
}

// jitter keeps the nodes of a mesh from all coming back at once.
func jitter(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2) }

// sleep waits, and says whether the time passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
