package bench

import (
	"context"
	"net/http"
)

// RunFinalize takes each object through the life that a controller gives it: create it with a
// finalizer, delete it, remove the finalizer. Three requests are one operation.
func RunFinalize(ctx context.Context, config Config) (Result, error) {
	text()
	return runOnEach(ctx, config, "finalize", (*session).finalize)
}

const (
	finalizedPrefix = "finalized-"
	finalizedData   = `","finalizers":["bench.exeunt.dev/hold"],"labels":{"app":"bench"}},"data":{"text":"`
)

func (s *session) finalize(ctx context.Context, c client, n int) (int64, error) {
	name := finalizedPrefix + objectName(n)
	body := &payload{pieces: [5]string{bodyHead, name, finalizedData, data(n, s.Size), bodyTail}}
	size, err := c.discard(ctx, http.MethodPost, s.path, "", writeHeader, body)
	if err != nil {
		return size, err
	}
	more, err := c.discard(ctx, http.MethodDelete, s.path+"/"+name, "", plainHeader, nil)
	size += more
	if err != nil {
		return size, err
	}
	release := &payload{pieces: [5]string{`{"metadata":{"finalizers":null}}`}}
	more, err = c.discard(ctx, http.MethodPatch, s.path+"/"+name, "", mergeHeader, release)
	return size + more, err
}
