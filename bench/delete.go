package bench

import (
	"context"
	"net/http"
)

// RunDelete deletes every object, one request each.
func RunDelete(ctx context.Context, config Config) (Result, error) {
	return runOnEach(ctx, config, "delete", func(s *session, ctx context.Context, c client, n int) (int64, error) {
		return c.discard(ctx, http.MethodDelete, s.path+"/"+objectName(n), "", plainHeader, nil)
	})
}
