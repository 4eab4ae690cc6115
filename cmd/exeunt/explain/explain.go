// Package explain makes errors of requests that name the server, the kubeconfig and the remedy.
package explain

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/transport"
)

// ConnectError: a request got no answer from an Exeunt server. The text names the
// server, the kubeconfig and the remedy.
type ConnectError struct {
	text  string
	cause error // nil means that another server answered
}

func (e *ConnectError) Error() string { return e.text }
func (e *ConnectError) Unwrap() error { return e.cause }

// Shortest returns the error to print: if the server was not reached, only the
// ConnectError, without the names of the requests that failed.
func Shortest(err error) error {
	var unreached *ConnectError
	if errors.As(err, &unreached) {
		return unreached
	}
	return err
}

// Hint says what gives the client a right that it lacks, if there is one way that most need.
func Hint(err error) string {
	switch text := err.Error(); {
	case !apierrors.IsForbidden(err):
		return ""
	case strings.Contains(text, "get path"):
		return "\nThe ClusterRole system:exeunt-operator has this right: ask an administrator to bind it to you"
	case strings.HasSuffix(text, "at the cluster scope"):
		return "\nIf you have rights in a namespace, name it: -n NAMESPACE"
	}
	return ""
}

// Transport wraps a transport: its errors say where the server is.
func Transport(where string) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper { return &explainer{next: next, where: where} }
}

type explainer struct {
	next  http.RoundTripper
	where string
}

// WrappedRoundTripper lets client-go find the transport below. It prints a
// warning to the terminal for a transport that it cannot look into.
func (e *explainer) WrappedRoundTripper() http.RoundTripper { return e.next }

func (e *explainer) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := e.next.RoundTrip(req)
	switch {
	case err != nil && req.Context().Err() != nil:
		return nil, err // this program canceled the request
	case err != nil:
		return nil, &ConnectError{e.unreached(err), err}
	case resp.StatusCode == http.StatusUnauthorized:
		return nil, refuse(resp, "%s does not accept the credentials of that context: use the kubeconfig that it wrote to its data directory, or another --context", e.where)
	case resp.StatusCode == http.StatusNotFound && ours(req.URL.Path) && !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json"):
		return nil, refuse(resp, "%s does not know %s: it is no Exeunt server, or an older one; choose another with --kubeconfig or --context", e.where, req.URL.Path)
	}
	return resp, nil
}

// ours reports whether only Exeunt servers have the path. They answer it in JSON,
// also with 404.
func ours(path string) bool {
	return strings.HasPrefix(path, "/exeunt/") || strings.HasPrefix(path, "/apis/lifecycle.exeunt.dev/v1/")
}

func refuse(resp *http.Response, format string, args ...any) error {
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) // so that the connection can be reused
	_ = resp.Body.Close()
	return &ConnectError{text: fmt.Sprintf(format, args...)}
}

func (e *explainer) unreached(err error) string {
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, &untrusted):
		return fmt.Sprintf("%s has a certificate that this kubeconfig does not trust (%v): use the kubeconfig that the server wrote to its data directory", e.where, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%s does not answer (%v): see whether it runs, or choose another with --kubeconfig or --context", e.where, err)
	}
	return fmt.Sprintf(`%s cannot be reached (%v): start one with "exeunt serve", or choose another with --kubeconfig or --context`, e.where, err)
}
