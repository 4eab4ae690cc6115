package bench

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// RunList lists all objects in one response, repeatedly, one request at a time:
// as raw bytes, and decoded into Go objects as client-go does it; each plain
// and compressed. Quote its p50.
func RunList(ctx context.Context, config Config) (Result, error) {
	s, err := openSeeded(ctx, config)
	if err != nil {
		return Result{}, err
	}
	defer s.pool.close()
	result := Result{Workload: "list"}
	for _, variant := range []struct {
		name   string
		header http.Header
		list   func(context.Context, client, http.Header) (int64, error)
	}{
		{"list", plainHeader, s.listRaw},
		{"list, gzip", gzipHeader, s.listRaw},
		{"list, decoded", plainHeader, s.listDecoded},
		{"list, gzip, decoded", gzipHeader, s.listDecoded},
	} {
		measure, err := s.inTurn(ctx, variant.name, func() (int64, error) { return variant.list(ctx, s.pool.client(0), variant.header) })
		if err != nil {
			return Result{}, err
		}
		result.Measures = append(result.Measures, measure)
	}
	return result, ctx.Err()
}

// inTurn calls list once for each round, one after the other.
func (s *session) inTurn(ctx context.Context, name string, list func() (int64, error)) (Measure, error) {
	m, err := startMeter(s.PID)
	if err != nil {
		return Measure{}, err
	}
	var t tally
	for range s.Rounds {
		if ctx.Err() != nil {
			break
		}
		begin := time.Now()
		bytes, err := list()
		t.count(time.Since(begin), bytes, err)
	}
	return m.stop(name, &t)
}

// listRaw reads a list to its end without decoding it.
func (s *session) listRaw(ctx context.Context, c client, header http.Header) (int64, error) {
	return c.discard(ctx, http.MethodGet, s.path, "", header, nil)
}

// listDecoded decodes a list and checks that it is complete.
func (s *session) listDecoded(ctx context.Context, c client, header http.Header) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := c.send(ctx, http.MethodGet, s.path, "", header, nil)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	wire := &countingReader{from: answer.Body}
	var body io.Reader = wire
	if answer.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(wire); err != nil {
			return wire.n, fmt.Errorf("list: %w", err)
		}
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return wire.n, fmt.Errorf("list: read answer: %w", err)
	}
	var list corev1.ConfigMapList
	if err := json.Unmarshal(data, &list); err != nil {
		return wire.n, fmt.Errorf("list: decode answer: %w", err)
	}
	found := 0
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, namePrefix) {
			found++
		}
	}
	if found < s.Objects {
		return wire.n, fmt.Errorf("list holds %d of %d objects", found, s.Objects)
	}
	return wire.n, nil
}

// countingReader counts the bytes that are read.
type countingReader struct {
	from io.Reader
	n    int64
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.n += int64(n)
	return n, err
}
