package auditlog

import (
	"net/url"
	"strings"

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

// redacting removes secrets from events before a backend sees them.
type redacting struct{ audit.Backend }

func (r redacting) ProcessEvents(events ...*auditinternal.Event) bool {
	clean := make([]*auditinternal.Event, len(events))
	for i, e := range events {
		clean[i] = redact(e)
	}
	return r.Backend.ProcessEvents(clean...)
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
