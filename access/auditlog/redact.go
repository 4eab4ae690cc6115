package auditlog

import (
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/time/rate"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
)

// secrets are the resources whose requests or answers hold secrets, as
// GROUP/RESOURCE/SUBRESOURCE. Archived objects may be Secrets.
var secrets = map[string]bool{
	"/secrets/":                             true,
	"/serviceaccounts/token":                true,
	"authentication.k8s.io/tokenreviews/":   true,
	"lifecycle.exeunt.dev/archivedobjects/": true,
	"access.exeunt.dev/users/":              true, // hashes of tokens
}

func isSecret(group, resource, subresource string) bool {
	return secrets[group+"/"+resource+"/"+subresource]
}

// redacting bounds events and removes secrets from them before a backend sees them. Of
// failed authentications it passes only some.
type redacting struct {
	audit.Backend
	failed     *rate.Limiter
	unrecorded atomic.Int64 // failed authentications since the last that was recorded
	dropped    atomic.Int64 // all of them
}

func (r *redacting) ProcessEvents(events ...*auditinternal.Event) bool {
	clean := make([]*auditinternal.Event, 0, len(events))
	for _, e := range events {
		refused := failed(e)
		if refused && !r.failed.Allow() {
			r.unrecorded.Add(1)
			r.dropped.Add(1)
			continue
		}
		out := redact(bounded(e))
		if refused {
			if n := r.unrecorded.Swap(0); n > 0 {
				annotate(out, unrecordedAnnotation, strconv.FormatInt(n, 10))
			}
		}
		clean = append(clean, out)
	}
	return len(clean) == 0 || r.Backend.ProcessEvents(clean...)
}

// redact returns the event without secrets. It does not change e, which the request
// still uses. The level of secret resources is Metadata at most (policy.go), so their
// bodies are absent already; an error message may still quote the body.
func redact(e *auditinternal.Event) *auditinternal.Event {
	out := *e
	out.RequestURI = redactQuery(e.RequestURI)
	ref := e.ObjectRef
	if ref == nil || !isSecret(ref.APIGroup, ref.Resource, ref.Subresource) {
		return &out
	}
	out.RequestObject, out.ResponseObject = nil, nil
	if s := e.ResponseStatus; s != nil {
		out.ResponseStatus = &metav1.Status{Status: s.Status, Reason: s.Reason, Code: s.Code}
	}
	return &out
}

// redactQuery replaces the values of parameters that are called tokens or secrets. This
// server accepts no credentials in a query, but a client may send them.
func redactQuery(uri string) string {
	path, query, found := strings.Cut(uri, "?")
	if !found {
		return uri
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return path + "?invalid"
	}
	changed := false
	for name := range values {
		if lower := strings.ToLower(name); strings.Contains(lower, "token") || strings.Contains(lower, "secret") || strings.Contains(lower, "password") {
			values[name] = []string{"redacted"}
			changed = true
		}
	}
	if !changed {
		return uri
	}
	return path + "?" + values.Encode()
}
