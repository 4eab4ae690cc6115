package lifecycle

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ArchiveFor is the annotation of a Namespace that says how long the archive keeps its
// objects, as a duration: "3d", "72h".
const ArchiveFor = "lifecycle.exeunt.dev/archive-for"

// HistoryFor is the annotation of a Namespace that says how long earlier versions of its
// objects are kept, as a duration: "3d", "72h".
const HistoryFor = "lifecycle.exeunt.dev/history-for"

// annotation is one of this server's domain.
type annotation struct {
	name string
	// check refuses a value that the server would ignore. Nil if the annotation is a mark,
	// which the server alone sets.
	check func(string) error
}

// annotations are all of them. Validation and those who read a value use the same parser.
var annotations = []annotation{
	{HeldAbove, nil},
	{ConfirmCascade, checks(parseConfirmed)},
	{MaxCascade, checks(parseLimit)},
	{ConfirmBy, checks(parseConfirmBy)},
	{ArchiveFor, checks(parseWindow)},
	{HistoryFor, checks(parseWindow)},
	{PropagateGrace, checkGrace},
	{ExpiresAt, checks(parseTime)},
	{TTL, checks(parseAge)},
	{KeepUntil, checks(parseKeep)},
	{KeepReason, func(string) error { return nil }},
	{ImmutableTags, checks(ParsePatterns)},
	{ConfirmTag, checks(parseConfirmedTags)},
	{StartRetention, checks(parseGeneration)},
	{StartExpiry, checks(ParseStart)},
}

// NamespaceSettings are the annotations of a Namespace that decide what its deletions do.
// A Repository may have the last.
var NamespaceSettings = []string{MaxCascade, ConfirmBy, ArchiveFor, ImmutableTags}

func checks[T any](parse func(string) (T, error)) func(string) error {
	return func(text string) error {
		_, err := parse(text)
		return err
	}
}

func parseLimit(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, errors.New(`must be a number of objects in plain digits, such as "1000"; "0" is no limit`)
	}
	return n, nil
}

func parseConfirmed(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, errors.New(`must be the number of objects that may go, in plain digits, such as "12"`)
	}
	return n, nil
}

func parseConfirmBy(text string) (string, error) {
	if text != anotherUser {
		return "", errors.New(`must be "` + anotherUser + `"`)
	}
	return text, nil
}

// ParseDuration is time.ParseDuration, and takes days in front: "7d", "1d12h".
func ParseDuration(text string) (time.Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseUint(days, 10, 16)
	d := time.Duration(n) * 24 * time.Hour
	if err != nil || rest == "" {
		return d, err
	}
	more, err := time.ParseDuration(rest)
	if more < 0 {
		err = errors.New("a duration has one sign, in front")
	}
	return d + more, err
}

func parseWindow(text string) (time.Duration, error) {
	d, err := ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errors.New(`must be a duration such as "3d", "72h" or "90m"; "0s" keeps nothing`)
	}
	return d, nil
}

func parseGrace(text string) (int64, error) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 {
		return 0, errors.New(`must be a number of seconds, or "true" for the grace period of the delete`)
	}
	return min(seconds, maxGrace), nil
}

func checkGrace(text string) error {
	if text == "true" {
		return nil
	}
	_, err := parseGrace(text)
	return err
}

// read returns the value of an annotation; false if it is absent, or was stored with a
// value that is refused today.
func read[T any](m map[string]string, name string, parse func(string) (T, error)) (value T, ok bool) {
	text, ok := m[name]
	if !ok {
		return value, false
	}
	value, err := parse(text)
	return value, err == nil
}

// ArchiveWindow is how long the annotations of a Namespace ask the archive to keep its
// objects.
func ArchiveWindow(namespace map[string]string) (time.Duration, bool) {
	return read(namespace, ArchiveFor, parseWindow)
}

// HistoryWindow is how long the annotations of a Namespace ask the history to keep versions.
func HistoryWindow(namespace map[string]string) (time.Duration, bool) {
	return read(namespace, HistoryFor, parseWindow)
}

// checkAnnotations refuses values that the server would ignore, and marks that a client
// changes. A value that an update leaves as it was is accepted, so that an object from
// before the rule can be updated; one that is restored is as it was. was is nil for a
// create.
func checkAnnotations(m, was map[string]string, restored bool) (errs field.ErrorList) {
	for _, a := range annotations {
		value, ok := m[a.name]
		if old, found := was[a.name]; ok == found && value == old {
			continue
		}
		path := metadataPath.Child("annotations").Key(a.name)
		switch {
		case a.check == nil:
			errs = append(errs, field.Forbidden(path, notYours))
		case ok && !restored:
			if err := a.check(value); err != nil {
				errs = append(errs, field.Invalid(path, value, err.Error()))
			}
		}
	}
	return errs
}

// KeepMarks returns annotations with the marks that they had before, and whether they
// differ.
func KeepMarks(now, before map[string]string) (kept map[string]string, changed bool) {
	kept = map[string]string{}
	maps.Copy(kept, now)
	for _, a := range annotations {
		old, had := before[a.name]
		if value, has := now[a.name]; a.check != nil || has == had && value == old {
			continue
		}
		changed = true
		delete(kept, a.name)
		if had {
			kept[a.name] = old
		}
	}
	return kept, changed
}

// annotationsOf returns the annotations of an object that may be absent.
func annotationsOf(m metav1.Object) map[string]string {
	if m == nil {
		return nil
	}
	return m.GetAnnotations()
}

// A mark is an annotation or a finalizer that the server sets on an object when its
// deletion begins. All that the guard knows is in marks, so no client changes them: not
// by an update of any kind, and not by a create that has them from the beginning.
//
// The guard's finalizer is also a setting: on an ACTIVE object it asks for a confirmation
// of any delete. So clients may add it, and remove it with the right to confirm (Confirms).

const (
	notYours  = "is set by the server alone"
	confirmIt = "holds the deletion until it is confirmed: set the annotation " + ConfirmCascade +
		" to the number of objects that may go; to call it off: exeunt restore"
)

// checkMarks refuses a write that changes marks, or sets an annotation of this server to
// a value that it would ignore. was is nil for a create.
func checkMarks(m, was metav1.Object, restored bool) (errs field.ErrorList) {
	errs = checkAnnotations(m.GetAnnotations(), annotationsOf(was), restored)
	has := m.GetFinalizers()
	var had []string
	deleting := false
	if was != nil {
		had, deleting = was.GetFinalizers(), was.GetDeletionTimestamp() != nil
	}
	path := metadataPath.Child("finalizers")
	if deleting && slices.Contains(had, ConfirmCascade) && !slices.Contains(has, ConfirmCascade) {
		errs = append(errs, field.Forbidden(path, ConfirmCascade+" "+confirmIt))
	}
	if is, was := slices.Contains(has, PropagateGrace), slices.Contains(had, PropagateGrace); is && !was || !is && was && deleting {
		errs = append(errs, field.Forbidden(path, PropagateGrace+" "+notYours))
	}
	return errs
}

// Confirms reports whether a write lets a cascade pass that the guard would hold: it
// confirms a number of objects, or removes the guard's finalizer from an ACTIVE object; or
// it lets an immutable tag go, or a retention begin. old is nil for a create.
func Confirms(m, old metav1.Object) bool {
	confirmed, guarded := annotationsOf(old)[ConfirmCascade], old != nil && slices.Contains(old.GetFinalizers(), ConfirmCascade)
	now := m.GetAnnotations()[ConfirmCascade]
	return now != "" && now != confirmed || guarded && !slices.Contains(m.GetFinalizers(), ConfirmCascade) || confirmsTag(m, old) != ""
}

// Released names what a write that confirms lets pass, for the audit log.
func Released(m, old metav1.Object) string {
	return cmp.Or(confirmsTag(m, old), m.GetAnnotations()[ConfirmCascade], "the guard's finalizer")
}
