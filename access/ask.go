package access

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Ask sends a request to the API of this process. The context has the client, by WithClient. The error is that of
// the API.
func Ask(ctx context.Context, api http.Handler, method, path string, body []byte, prepare func(*http.Request)) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	prepare(req)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	answer := answerWriter{header: http.Header{}}
	api.ServeHTTP(&answer, req)
	if answer.code < http.StatusBadRequest {
		return answer.body.Bytes(), nil
	}
	var status metav1.Status
	if err := json.Unmarshal(answer.body.Bytes(), &status); err != nil {
		// A path that is not served is answered with a text.
		return nil, apierrors.NewGenericServerResponse(answer.code, method, schema.GroupResource{}, path, answer.body.String(), 0, true)
	}
	return nil, apierrors.FromObject(&status)
}

// answerWriter keeps the answer to a request of this process.
type answerWriter struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header is part of http.ResponseWriter.
func (w *answerWriter) Header() http.Header { return w.header }

// WriteHeader is part of http.ResponseWriter.
func (w *answerWriter) WriteHeader(code int) {
	w.code = cmp.Or(w.code, code)
}

// Write is part of http.ResponseWriter.
func (w *answerWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Own is the context of a request that is a part of another one. It has nothing of the other one but its end, and an
// audit event of its own.
type Own struct{ context.Context }

// Value is part of context.Context.
func (Own) Value(any) any { return nil }
