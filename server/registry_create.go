package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/audit"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/registry"
)

// registryManager is the manager of the fields of objects that pushes create.
const registryManager = "exeunt-registry"

// creator creates objects for clients of the registry.
type creator struct{ api http.Handler }

// create is repository.Create: a request to the API of this process, as the client, from
// where the client is, and with the audit id of its push.
func (c creator) create(ctx context.Context, by registry.Client, resource string, obj *unstructured.Unstructured) error {
	client, ok := by.(*registryClient)
	if !ok || client.req == nil {
		return errors.New("create an object for a push: the client is not known")
	}
	body, err := obj.MarshalJSON()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(access.WithClient(ownEvent{ctx}, client.user), http.MethodPost,
		createPath(obj, resource)+"?fieldManager="+registryManager, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for _, name := range []string{"User-Agent", "X-Forwarded-For", "X-Real-Ip"} { // what the audit log says of a client
		req.Header[name] = client.req.Header[name]
	}
	req.RemoteAddr = client.req.RemoteAddr
	if id, ok := audit.AuditIDFrom(ctx); ok {
		req.Header.Set("Audit-Id", string(id))
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	answer := answerWriter{header: http.Header{}}
	c.api.ServeHTTP(&answer, req)
	if answer.code == http.StatusCreated {
		return nil
	}
	var status metav1.Status
	if err := json.Unmarshal(answer.body.Bytes(), &status); err != nil {
		return fmt.Errorf("create %s: the API answered %d: %w", resource, answer.code, err)
	}
	return apierrors.FromObject(&status)
}

// ownEvent is the context of a push without its audit event: the create has one of its
// own.
type ownEvent struct{ context.Context }

// Value is part of context.Context.
func (c ownEvent) Value(key any) any {
	value := c.Context.Value(key)
	if _, of := value.(*audit.AuditContext); of {
		return nil
	}
	return value
}

// createPath is the path to which an object is posted.
func createPath(obj *unstructured.Unstructured, resource string) string {
	gv := obj.GroupVersionKind().GroupVersion()
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	if namespace := obj.GetNamespace(); namespace != "" {
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
	if w.code == 0 {
		w.code = code
	}
}

// Write is part of http.ResponseWriter.
func (w *answerWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}
