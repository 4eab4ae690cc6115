package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ask sends a request to the API of this process. The context has the client. The error is that of the API.
func ask(ctx context.Context, api http.Handler, method, path string, body []byte, prepare func(*http.Request)) error {
	req, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	prepare(req)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	answer := answerWriter{header: http.Header{}}
	api.ServeHTTP(&answer, req)
	if answer.code < http.StatusBadRequest {
		return nil
	}
	var status metav1.Status
	if err := json.Unmarshal(answer.body.Bytes(), &status); err != nil {
		return fmt.Errorf("%s %s: the API answered %d: %w", method, path, answer.code, err)
	}
	return apierrors.FromObject(&status)
}

// objectsPath is the path of the objects of a resource in a namespace.
func objectsPath(gv schema.GroupVersion, namespace, resource string) string {
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + resource
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
