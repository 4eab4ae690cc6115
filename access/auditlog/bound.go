package auditlog

import (
	"maps"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authentication/user"
)

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
