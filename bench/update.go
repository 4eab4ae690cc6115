package bench

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// RunUpdate replaces every object by one that differs in one field.
func RunUpdate(ctx context.Context, config Config) (Result, error) {
	mark := newMark()
	return runOnEach(ctx, config, "update", func(s *session, ctx context.Context, c client, n int) (int64, error) {
		name := objectName(n)
		return c.discard(ctx, http.MethodPut, s.path+"/"+name, "", writeHeader, stamped(name, data(n, s.Size), mark))
	})
}

// RunPatch changes a field of every object by a JSON merge patch.
func RunPatch(ctx context.Context, config Config) (Result, error) {
	body := &payload{pieces: [5]string{fmt.Sprintf(`{"data":{"stamp":%q}}`, newMark())}}
	return runOnEach(ctx, config, "patch", func(s *session, ctx context.Context, c client, n int) (int64, error) {
		return c.discard(ctx, http.MethodPatch, s.path+"/"+objectName(n), "", mergeHeader, body)
	})
}

// newMark is a value that no earlier run has written.
func newMark() string { return fmt.Sprint(time.Now().UnixNano()) }
