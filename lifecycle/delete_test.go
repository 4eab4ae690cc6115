package lifecycle_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// podRules are the rules of a graceful kind whose objects get 30 seconds.
var podRules = lifecycle.Rules{Graceful: func(_ []byte, requested *int64) (int64, bool) {
	if requested != nil {
		return *requested, true
	}
	return 30, true
}}

func grace(seconds int64) metav1.DeleteOptions {
	return metav1.DeleteOptions{GracePeriodSeconds: &seconds}
}

func propagation(p metav1.DeletionPropagation) metav1.DeleteOptions {
	return metav1.DeleteOptions{PropagationPolicy: &p}
}

// inGrace makes an object DELETING at some seconds after the start.
func inGrace(at int, seconds int64, finalizers ...string) func(*corev1.ConfigMap) {
	return func(obj *corev1.ConfigMap) {
		obj.DeletionTimestamp, obj.DeletionGracePeriodSeconds, obj.Finalizers = after(at), &seconds, finalizers
	}
}

func finalizers(list ...string) func(*corev1.ConfigMap) {
	return func(obj *corev1.ConfigMap) { obj.Finalizers = list }
}

// remove calls BeforeDelete for a stored object, and checks what holds for all answers:
// the inputs are unchanged, and metadata and body agree.
func remove(t *testing.T, obj *corev1.ConfigMap, options metav1.DeleteOptions, rules lifecycle.Rules) (lifecycle.Decision, error) {
	t.Helper()
	body, err := object.Encode(obj)
	if err != nil {
		t.Fatal(err)
	}
	m, err := object.ParseMeta(body)
	if err != nil {
		t.Fatal(err)
	}
	d := lifecycle.Deletion{Body: body, Meta: m, Revision: 5, Options: options, Rules: rules, Now: start}
	keptBody, keptMeta, keptOptions := bytes.Clone(body), m.DeepCopy(), options.DeepCopy()
	keptFinalizers := append([]string(nil), rules.DeleteFinalizers...)
	decision, err := lifecycle.BeforeDelete(d)
	if !bytes.Equal(body, keptBody) || !reflect.DeepEqual(&m, keptMeta) || !reflect.DeepEqual(&options, keptOptions) {
		t.Errorf("the inputs changed: %s %+v %+v", body, m, options)
	}
	if len(rules.DeleteFinalizers) > 0 && !reflect.DeepEqual(rules.DeleteFinalizers, keptFinalizers) {
		t.Errorf("the rules changed: %q", rules.DeleteFinalizers)
	}
	if err == nil {
		checkDecision(t, d, decision)
	}
	return decision, err
}

// TestAnswerOfARemoval: a graceful delete that removes the object at once shows its marks,
// as Kubernetes does. Others show the object as it was.
func TestAnswerOfARemoval(t *testing.T) {
	t.Parallel()
	got, err := remove(t, stored(nil), grace(0), podRules)
	if err != nil || got.Outcome != lifecycle.Remove || got.Answer == nil {
		t.Fatalf("got %+v, %v", got, err)
	}
	if m := got.Answer; m.DeletionTimestamp == nil || *m.DeletionGracePeriodSeconds != 0 || m.Generation != got.Meta.Generation+1 {
		t.Errorf("answers %+v", m)
	}
	got, err = remove(t, stored(inGrace(50, 50)), grace(0), podRules)
	if err != nil || got.Answer == nil || *got.Answer.DeletionGracePeriodSeconds != 0 || *got.Meta.DeletionGracePeriodSeconds != 50 {
		t.Errorf("the end of a grace period: %+v, %v", got, err)
	}
	if got, err = remove(t, stored(nil), metav1.DeleteOptions{}, lifecycle.Rules{}); err != nil || got.Answer != nil {
		t.Errorf("not graceful: %+v, %v", got, err)
	}
}

func checkDecision(t *testing.T, d lifecycle.Deletion, got lifecycle.Decision) {
	t.Helper()
	if got.Policy != d.Policy() {
		t.Errorf("the policy is %q, and was decided to be %q", d.Policy(), got.Policy)
	}
	if got.Outcome != lifecycle.Mark && (!bytes.Equal(got.Body, d.Body) || !reflect.DeepEqual(got.Meta, d.Meta)) {
		t.Errorf("%v changed the object: %s", got.Outcome, got.Body)
	}
	again, err := object.ParseMeta(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !again.DeletionTimestamp.Equal(got.Meta.DeletionTimestamp) ||
		!reflect.DeepEqual(again.DeletionGracePeriodSeconds, got.Meta.DeletionGracePeriodSeconds) ||
		strings.Join(again.Finalizers, ",") != strings.Join(got.Meta.Finalizers, ",") ||
		again.Generation != got.Meta.Generation {
		t.Errorf("body %s does not say what the metadata says: %+v", got.Body, got.Meta)
	}
}

func TestBeforeDeleteValidatesOptions(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]metav1.DeleteOptions{
		"unknown policy":  propagation("Sideways"),
		"policy twice":    {OrphanDependents: ptr(true), PropagationPolicy: ptr(metav1.DeletePropagationOrphan)},
		"unknown dry run": {DryRun: []string{"Some"}},
	} {
		if _, err := remove(t, stored(nil), options, lifecycle.Rules{}); !object.Is(err, object.Invalid) {
			t.Errorf("%s: got %v, want an Invalid", name, err)
		}
	}
}

func TestBeforeDeletePreconditions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		uid, version, refused string
	}{
		"the same":      {"u", "5", ""},
		"another uid":   {"w", "5", "the UID in the precondition (w) does not match the UID in record (u). The object might have been deleted and then recreated"},
		"older version": {"u", "4", "the ResourceVersion in the precondition (4) does not match the ResourceVersion in record (5). The object might have been modified"},
		"empty version": {"u", "", "the ResourceVersion in the precondition () does not match the ResourceVersion in record (5). The object might have been modified"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			uid := types.UID(test.uid)
			options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &test.version}}
			got, err := remove(t, stored(nil), options, lifecycle.Rules{})
			if test.refused != "" {
				wantError(t, err, object.Conflict, test.refused)
				return
			}
			if err != nil || got.Outcome != lifecycle.Remove {
				t.Errorf("got %v, %v", got.Outcome, err)
			}
		})
	}
	if _, err := remove(t, stored(nil), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{}}, lifecycle.Rules{}); err != nil {
		t.Errorf("no precondition in it: %v", err)
	}
}

// result is the expected decision. at is in seconds after the start.
type result struct {
	outcome    lifecycle.Outcome
	at         int
	grace      int64
	finalizers string
	generation int64
}

func checkResult(t *testing.T, got lifecycle.Decision, want result) {
	t.Helper()
	if got.Outcome != want.outcome {
		t.Fatalf("got %v, want %v", got.Outcome, want.outcome)
	}
	if want.outcome != lifecycle.Mark {
		return
	}
	m := got.Meta
	if m.DeletionTimestamp == nil || m.DeletionGracePeriodSeconds == nil {
		t.Fatalf("marked without deletion time or grace: %+v", m)
	}
	at := int(m.DeletionTimestamp.Sub(after(0).Time) / time.Second)
	have := result{got.Outcome, at, *m.DeletionGracePeriodSeconds, strings.Join(m.Finalizers, " "), m.Generation}
	if have != want {
		t.Errorf("got  %+v\nwant %+v", have, want)
	}
	if m.DeletionTimestamp.Nanosecond() != 0 {
		t.Errorf("deletion time %v is not a whole second", m.DeletionTimestamp)
	}
}

type deleteTest struct {
	old     func(*corev1.ConfigMap)
	options metav1.DeleteOptions
	rules   lifecycle.Rules
	want    result
}

func runDeletes(t *testing.T, tests map[string]deleteTest) {
	t.Parallel()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := remove(t, stored(test.old), test.options, test.rules)
			if err != nil {
				t.Fatal(err)
			}
			checkResult(t, got, test.want)
		})
	}
}

func TestBeforeDeleteWithoutGrace(t *testing.T) {
	none := lifecycle.Rules{}
	runDeletes(t, map[string]deleteTest{
		"nothing holds it":                 {nil, metav1.DeleteOptions{}, none, result{outcome: lifecycle.Remove}},
		"grace asked of a kind without":    {nil, grace(30), none, result{outcome: lifecycle.Remove}},
		"a finalizer holds it":             {finalizers("a/b"), grace(30), none, result{lifecycle.Mark, 0, 0, "a/b", 5}},
		"a second time, nothing differs":   {inGrace(-9, 0, "a/b"), metav1.DeleteOptions{}, none, result{outcome: lifecycle.Unchanged}},
		"a half-finished one is completed": {inGrace(-9, 0), metav1.DeleteOptions{}, none, result{outcome: lifecycle.Remove}},
		"grace nil is grace 0": {func(o *corev1.ConfigMap) { o.DeletionTimestamp = after(-9) },
			metav1.DeleteOptions{}, none, result{outcome: lifecycle.Remove}},
		"grace nil is written as 0": {func(o *corev1.ConfigMap) { o.DeletionTimestamp, o.Finalizers = after(-9), []string{"a/b"} },
			metav1.DeleteOptions{}, none, result{lifecycle.Mark, -9, 0, "a/b", 4}},
		"a time to come becomes now": {inGrace(90, 90, "a/b"), metav1.DeleteOptions{}, none, result{lifecycle.Mark, 0, 0, "a/b", 4}},
		"no generation, none begun": {func(o *corev1.ConfigMap) { o.Generation, o.Finalizers = 0, []string{"a/b"} },
			metav1.DeleteOptions{}, none, result{lifecycle.Mark, 0, 0, "a/b", 0}},
	})
}

func TestBeforeDeleteWithGrace(t *testing.T) {
	none := metav1.DeleteOptions{}
	reluctant := lifecycle.Rules{Graceful: func([]byte, *int64) (int64, bool) { return 7, false }}
	broken := lifecycle.Rules{Graceful: func([]byte, *int64) (int64, bool) { return -7, true }}
	runDeletes(t, map[string]deleteTest{
		"the kind's own":               {nil, none, podRules, result{lifecycle.Mark, 30, 30, "", 5}},
		"as asked":                     {nil, grace(60), podRules, result{lifecycle.Mark, 60, 60, "", 5}},
		"none asked":                   {nil, grace(0), podRules, result{outcome: lifecycle.Remove}},
		"none asked, but a finalizer":  {finalizers("a/b"), grace(0), podRules, result{lifecycle.Mark, 0, 0, "a/b", 5}},
		"negative is a second":         {nil, grace(-5), podRules, result{lifecycle.Mark, 1, 1, "", 5}},
		"negative by the kind":         {nil, none, broken, result{lifecycle.Mark, 1, 1, "", 5}},
		"the kind declines":            {nil, grace(9), reluctant, result{outcome: lifecycle.Remove}},
		"the kind declines, finalizer": {finalizers("a/b"), grace(9), reluctant, result{lifecycle.Mark, 0, 0, "a/b", 5}},
		"more than any clock holds":    {nil, grace(1<<63 - 1), podRules, result{lifecycle.Mark, 3153600000, 3153600000, "", 5}},
		"with a finalizer":             {finalizers("a/b"), grace(5), podRules, result{lifecycle.Mark, 5, 5, "a/b", 5}},
	})
}

func TestBeforeDeleteShortensOnly(t *testing.T) {
	none := metav1.DeleteOptions{}
	unchanged := result{outcome: lifecycle.Unchanged}
	runDeletes(t, map[string]deleteTest{
		"nothing asked, pending":          {inGrace(20, 30), none, podRules, unchanged},
		"longer, pending":                 {inGrace(20, 30), grace(60), podRules, unchanged},
		"equal, pending":                  {inGrace(20, 30), grace(30), podRules, unchanged},
		"pending keeps its finalizers":    {inGrace(20, 30, "orphan"), propagation(metav1.DeletePropagationBackground), podRules, unchanged},
		"shorter":                         {inGrace(20, 30), grace(15), podRules, result{lifecycle.Mark, 5, 15, "", 4}},
		"never into the past":             {inGrace(20, 30), grace(5), podRules, result{lifecycle.Mark, 0, 1, "", 4}},
		"negative is a second":            {inGrace(29, 30), grace(-1), podRules, result{lifecycle.Mark, 0, 1, "", 4}},
		"to nothing":                      {inGrace(20, 30), grace(0), podRules, result{outcome: lifecycle.Remove}},
		"to nothing, with a finalizer":    {inGrace(20, 30, "a/b"), grace(0), podRules, result{lifecycle.Mark, 0, 0, "a/b", 4}},
		"over, and never later":           {inGrace(-20, 30, "a/b"), grace(5), podRules, result{lifecycle.Mark, -20, 1, "a/b", 4}},
		"over, no grace left":             {inGrace(-20, 0), none, podRules, result{outcome: lifecycle.Remove}},
		"over, but held by a finalizer":   {inGrace(-20, 0, "a/b"), none, podRules, unchanged},
		"a stored negative is a second":   {inGrace(20, -3), grace(0), podRules, result{outcome: lifecycle.Remove}},
		"a stored negative is no longer":  {inGrace(20, -3), grace(1), podRules, unchanged},
		"shortening changes the policy":   {inGrace(20, 30, "a/b"), metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(25)), OrphanDependents: ptr(true)}, podRules, result{lifecycle.Mark, 15, 25, "a/b orphan", 4}},
		"shortening to 0 drops a policy":  {inGrace(20, 30, "orphan"), metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0)), OrphanDependents: ptr(false)}, podRules, result{outcome: lifecycle.Remove}},
		"of a stored eternity":            {inGrace(20, 1<<63-1), grace(10), podRules, result{lifecycle.Mark, 0, 1, "", 4}},
		"shortened by more than is there": {inGrace(20, 30), grace(9), podRules, result{lifecycle.Mark, 0, 1, "", 4}},
	})
}

func TestBeforeDeletePolicy(t *testing.T) {
	background, foreground, orphan := propagation(metav1.DeletePropagationBackground),
		propagation(metav1.DeletePropagationForeground), propagation(metav1.DeletePropagationOrphan)
	none := metav1.DeleteOptions{}
	rules := lifecycle.Rules{}
	orphaning := lifecycle.Rules{DefaultPolicy: metav1.DeletePropagationOrphan}
	foregrounding := lifecycle.Rules{DefaultPolicy: metav1.DeletePropagationForeground}
	gone := result{outcome: lifecycle.Remove}
	mark := func(list string) result { return result{lifecycle.Mark, 0, 0, list, 5} }
	runDeletes(t, map[string]deleteTest{
		"background needs no finalizer":         {nil, background, rules, gone},
		"foreground":                            {nil, foreground, rules, mark("foregroundDeletion")},
		"orphan":                                {nil, orphan, rules, mark("orphan")},
		"orphanDependents true":                 {nil, metav1.DeleteOptions{OrphanDependents: ptr(true)}, rules, mark("orphan")},
		"orphanDependents false":                {finalizers("foregroundDeletion"), metav1.DeleteOptions{OrphanDependents: ptr(false)}, rules, gone},
		"option beats finalizer":                {finalizers("orphan"), foreground, rules, mark("foregroundDeletion")},
		"option beats finalizer, none left":     {finalizers("orphan"), background, rules, gone},
		"option beats finalizer and kind":       {finalizers("orphan"), background, orphaning, gone},
		"finalizer beats kind":                  {finalizers("foregroundDeletion"), none, orphaning, mark("foregroundDeletion")},
		"finalizer alone":                       {finalizers("orphan"), none, rules, mark("orphan")},
		"the kind orphans":                      {nil, none, orphaning, mark("orphan")},
		"the kind waits":                        {nil, none, foregrounding, mark("foregroundDeletion")},
		"other finalizers stay":                 {finalizers("a/b", "orphan", "c/d"), foreground, rules, mark("a/b c/d foregroundDeletion")},
		"other finalizers stay, background":     {finalizers("a/b", "orphan"), background, rules, mark("a/b")},
		"the first of two decides":              {finalizers("orphan", "foregroundDeletion"), none, rules, mark("orphan")},
		"already there, order kept":             {finalizers("orphan", "a/b"), orphan, rules, mark("orphan a/b")},
		"released from foreground":              {inGrace(-9, 0, "foregroundDeletion"), background, rules, gone},
		"foreground becomes orphan":             {inGrace(-9, 0, "foregroundDeletion"), orphan, rules, result{lifecycle.Mark, -9, 0, "orphan", 4}},
		"foreground again":                      {inGrace(-9, 0, "foregroundDeletion"), foreground, rules, result{outcome: lifecycle.Unchanged}},
		"a policy behind another finalizer":     {finalizers("a/b", "orphan"), metav1.DeleteOptions{}, rules, result{lifecycle.Mark, 0, 0, "a/b orphan", 5}},
		"not released from another's finalizer": {inGrace(-9, 0, "foregroundDeletion", "a/b"), background, rules, result{lifecycle.Mark, -9, 0, "a/b", 4}},
	})
}

func TestBeforeDeleteFinalizersOfTheKind(t *testing.T) {
	rules := lifecycle.Rules{DeleteFinalizers: []string{"kind/cleanup"}}
	none := metav1.DeleteOptions{}
	runDeletes(t, map[string]deleteTest{
		"added at the first request":      {nil, none, rules, result{lifecycle.Mark, 0, 0, "kind/cleanup", 5}},
		"added once":                      {finalizers("kind/cleanup", "a/b"), none, rules, result{lifecycle.Mark, 0, 0, "kind/cleanup a/b", 5}},
		"before the collector's":          {finalizers("a/b"), propagation(metav1.DeletePropagationOrphan), rules, result{lifecycle.Mark, 0, 0, "a/b kind/cleanup orphan", 5}},
		"not at the second":               {inGrace(-9, 0, "a/b"), none, rules, result{outcome: lifecycle.Unchanged}},
		"not when its work has been done": {inGrace(-9, 0), none, rules, result{outcome: lifecycle.Remove}},
	})
}

func TestBeforeDeleteRemovable(t *testing.T) {
	held := lifecycle.Rules{Removable: func(body []byte) bool { return !bytes.Contains(body, []byte(`"k":"v"`)) }}
	none := metav1.DeleteOptions{}
	runDeletes(t, map[string]deleteTest{
		"held by the kind":          {nil, none, held, result{lifecycle.Mark, 0, 0, "", 5}},
		"still held":                {inGrace(-9, 0), none, held, result{outcome: lifecycle.Unchanged}},
		"no longer held":            {func(o *corev1.ConfigMap) { inGrace(-9, 0)(o); o.Data = nil }, none, held, result{outcome: lifecycle.Remove}},
		"held, and grace asked for": {nil, grace(0), lifecycle.Rules{Graceful: podRules.Graceful, Removable: held.Removable}, result{lifecycle.Mark, 0, 0, "", 5}},
	})
}

func TestBeforeDeleteMarksTheBody(t *testing.T) {
	t.Parallel()
	rules := lifecycle.Rules{
		MarkDeleting: func(body []byte, _ time.Time) ([]byte, error) {
			// The rule changes its argument in place; the change must not be visible
			// outside.
			at := bytes.Index(body, []byte(`"k":"v"`))
			copy(body[at:], `"k":"T"`)
			return bytes.Replace(body, []byte(`"name":"a"`), []byte(`"name":"b"`), 1), nil
		},
		Removable: func([]byte) bool { return false },
	}
	got, err := remove(t, stored(nil), metav1.DeleteOptions{}, rules)
	if err != nil {
		t.Fatal(err)
	}
	checkResult(t, got, result{lifecycle.Mark, 0, 0, "", 5})
	if !bytes.Contains(got.Body, []byte(`"data":{"k":"T"}`)) || !bytes.Contains(got.Body, []byte(`"name":"a"`)) {
		t.Errorf("got %s", got.Body)
	}

	got, err = remove(t, stored(inGrace(50, 50)), metav1.DeleteOptions{}, rules)
	if err != nil || !bytes.Contains(got.Body, []byte(`"k":"v"`)) {
		t.Errorf("marked a second time: %s, %v", got.Body, err)
	}

	broken := errors.New("no phase here")
	rules.MarkDeleting = func([]byte, time.Time) ([]byte, error) { return nil, broken }
	if _, err := remove(t, stored(nil), metav1.DeleteOptions{}, rules); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	rules.MarkDeleting = func([]byte, time.Time) ([]byte, error) { return []byte("{}"), nil }
	if _, err := remove(t, stored(nil), metav1.DeleteOptions{}, rules); err == nil {
		t.Error("a body without metadata was accepted")
	}
}

func TestOutcomeString(t *testing.T) {
	t.Parallel()
	for want, outcome := range map[string]lifecycle.Outcome{
		"remove": lifecycle.Remove, "mark": lifecycle.Mark, "unchanged": lifecycle.Unchanged, "outcome 0": 0,
	} {
		if outcome.String() != want {
			t.Errorf("got %s, want %s", outcome, want)
		}
	}
}

// TestDeleteRefused: a kind can keep an object by its name.
func TestDeleteRefused(t *testing.T) {
	never := object.Errorf(object.Forbidden, "this may not be deleted")
	rules := lifecycle.Rules{Refuse: func(name string) error {
		if name == "kept" {
			return never
		}
		return nil
	}}
	for name, want := range map[string]error{"kept": never, "other": nil} {
		meta := metav1.ObjectMeta{Name: name}
		body, err := object.WithMeta([]byte(`{"metadata":{"name":"x"}}`), meta)
		if err != nil {
			t.Fatal(err)
		}
		d, err := lifecycle.BeforeDelete(lifecycle.Deletion{Body: body, Meta: meta})
		if err != nil || d.Outcome != lifecycle.Remove {
			t.Fatalf("without a rule: %v, %v", d.Outcome, err)
		}
		d, err = lifecycle.BeforeDelete(lifecycle.Deletion{Body: body, Meta: meta, Rules: rules})
		if !errors.Is(err, want) || (d.Outcome == lifecycle.Remove) != (want == nil) {
			t.Errorf("%s: %v, %v", name, d.Outcome, err)
		}
	}
}
