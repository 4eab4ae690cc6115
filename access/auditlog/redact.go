package auditlog

import (
	"maps"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
)

// secrets are the resources whose requests or answers hold secrets, as
// GROUP/RESOURCE/SUBRESOURCE. Archived objects may be Secrets.
var secrets = map[string]bool{
	"/secrets/":                             true,
	"/serviceaccounts/token":                true,
	"authentication.k8s.io/tokenreviews/":   true,
	"lifecycle.exeunt.dev/archivedobjects/": true,
	"lifecycle.exeunt.dev/restores/":        true, // objects of a backup
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
// still uses. The level of secret resources is Metadata at most (auditlog.go), so their
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

const (
	// maxText limits a text of an event, in bytes, maxList the elements of a list or map, and
	// maxLists the bytes of all texts in lists and maps.
	maxText, maxList, maxLists = 4 << 10, 100, 64 << 10
	// maxFailedText and maxFailedList are for a failed authentication.
	maxFailedText, maxFailedList = 256, 5
	// maxBodies limits both bodies of an event together, in bytes: an object of the largest
	// size that can be stored, sent and answered.
	maxBodies = 3 << 20

	// Of failed authentications, failedBurst are recorded at once, and failedRate more each
	// second. The others are counted.
	failedRate, failedBurst = 10, 50

	// truncatedAnnotation is Kubernetes' own.
	truncatedAnnotation  = "audit.k8s.io/truncated"
	unrecordedAnnotation = "access.exeunt.dev/unrecorded"
)

// failed reports whether the event is of a client that is not known, and whose request was
// refused or may still be.
func failed(e *auditinternal.Event) bool {
	if e.User.Username != "" && e.User.Username != user.Anonymous {
		return false
	}
	return e.ResponseStatus == nil || e.ResponseStatus.Code >= 400
}

// bounded returns the event with texts and lists of bounded size, and without bodies that
// are too large. It does not change e.
func bounded(e *auditinternal.Event) *auditinternal.Event {
	out, text, list := *e, maxText, maxList
	if failed(e) {
		text, list = maxFailedText, maxFailedList
	}
	truncated := bodySize(e.RequestObject)+bodySize(e.ResponseObject) > maxBodies
	if truncated {
		out.RequestObject, out.ResponseObject = nil, nil
	}
	look := shortener{limit: text, list: list}
	if look.apply(reflect.ValueOf(&out).Elem(), false) {
		truncated = true
		out = *out.DeepCopy()
		cut := shortener{limit: text, list: list, change: true}
		cut.apply(reflect.ValueOf(&out).Elem(), false)
	}
	if truncated {
		annotate(&out, truncatedAnnotation, "true")
	}
	return &out
}

func bodySize(u *runtime.Unknown) int {
	if u == nil {
		return 0
	}
	return len(u.Raw)
}

// annotate adds an annotation to a copy of an event, which shares its map with the event.
func annotate(e *auditinternal.Event, key, value string) {
	e.Annotations = maps.Clone(e.Annotations)
	if e.Annotations == nil {
		e.Annotations = map[string]string{}
	}
	e.Annotations[key] = value
}

// shortener bounds a value: a text has limit bytes at most, a list or map has list
// elements, and all texts in lists and maps together maxLists. Bodies are no lists here.
type shortener struct {
	limit  int
	list   int
	change bool // else it only looks
	lists  int  // bytes of texts in lists and maps so far
}

// apply bounds all fields of a value, and reports whether it must.
func (s *shortener) apply(v reflect.Value, inList bool) (over bool) {
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && s.apply(v.Elem(), inList)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				over = s.apply(v.Field(i), inList) || over
			}
		}
	case reflect.String:
		limit := s.limit
		if inList {
			limit = max(0, min(limit, maxLists-s.lists))
			s.lists += min(v.Len(), limit)
		}
		if over = v.Len() > limit; over && s.change {
			v.SetString(clip(v.String(), limit))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return false
		}
		if over = v.Len() > s.list; over && s.change {
			v.SetLen(s.list)
		}
		for i := range v.Len() {
			over = s.apply(v.Index(i), true) || over
		}
	case reflect.Map:
		over = v.Len() > s.list
		for _, key := range v.MapKeys() {
			element := reflect.New(v.Type().Elem()).Elem()
			element.Set(v.MapIndex(key))
			if s.lists += key.Len(); s.apply(element, true) || s.lists > maxLists {
				over = true
			}
			switch {
			case !s.change:
			case v.Len() > s.list || s.lists > maxLists:
				v.SetMapIndex(key, reflect.Value{})
			default:
				v.SetMapIndex(key, element)
			}
		}
	}
	return over
}

// clip shortens a text. It leaves no half of an escape such as %20, so that the query of a
// URI can be read.
func clip(text string, limit int) string {
	text = text[:limit]
	if i := strings.LastIndexByte(text, '%'); i > len(text)-3 && i >= 0 {
		text = text[:i]
	}
	return strings.ToValidUTF8(text, "") + "…"
}
