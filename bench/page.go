package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
)

// pageSize is the limit that kubectl and client-go's pager send.
const pageSize = 500

// RunPage lists all objects in pages, repeatedly, one request at a time. Compare its p50 with
// that of the plain list in RunList.
func RunPage(ctx context.Context, config Config) (Result, error) {
	s, err := openSeeded(ctx, config)
	if err != nil {
		return Result{}, err
	}
	defer s.pool.close()
	measure, err := s.inTurn(ctx, fmt.Sprintf("list, %d a page", pageSize), func() (int64, error) { return s.listPages(ctx, s.pool.client(0)) })
	if err != nil {
		return Result{}, err
	}
	return Result{Workload: "page", Measures: []Measure{measure}}, ctx.Err()
}

// listPages reads all pages of a list and checks that there are enough.
func (s *session) listPages(ctx context.Context, c client) (size int64, err error) {
	query := fmt.Sprintf("limit=%d", pageSize)
	for pages := 1; ; pages++ {
		data, err := c.get(ctx, s.path, query)
		if err != nil {
			return size, err
		}
		size += int64(len(data))
		token := continueToken(data)
		if token == "" {
			if want := (s.Objects + pageSize - 1) / pageSize; pages < want {
				return size, fmt.Errorf("list has %d pages, want %d", pages, want)
			}
			return size, nil
		}
		query = fmt.Sprintf("limit=%d&continue=%s", pageSize, url.QueryEscape(token))
	}
}

// continueToken finds the token in a list without decoding it: the objects' data has no quotes.
func continueToken(list []byte) string {
	_, rest, found := bytes.Cut(list, []byte(`"continue":"`))
	if !found {
		return ""
	}
	token, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(token)
}
