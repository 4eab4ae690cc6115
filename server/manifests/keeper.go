package manifests

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/internal/task"
)

// Keeper keeps a server and a directory in step.
type Keeper struct {
	dir    string
	logger *slog.Logger
	client *Client
	typed  kubernetes.Interface
	wrong  atomic.Pointer[string] // the problems of the last round; nil if there is none
}

const (
	look       = 5 * time.Second // how often the files are compared
	firstRetry = time.Second
	lastRetry  = time.Minute

	// The ConfigMap that says what was applied: the objects, one in a line, and the problems.
	recordNamespace, recordObjects, recordProblems = metav1.NamespaceSystem, "objects", "problems"
)

// NewKeeper makes a Keeper. It does no I/O.
func NewKeeper(config *rest.Config, dir string, logger *slog.Logger) (*Keeper, error) {
	client, err := NewClient(config)
	if err != nil {
		return nil, err
	}
	typed, err := kubernetes.NewForConfig(config)
	return &Keeper{dir: dir, logger: logger, client: client, typed: typed}, err
}

// Problem returns what of the last round went wrong.
func (k *Keeper) Problem() error {
	if text := k.wrong.Load(); text != nil {
		return errors.New(*text)
	}
	return nil
}

// Run works until the context ends.
func (k *Keeper) Run(ctx context.Context) {
	applied := ""
	for wait, retry := time.Duration(0), firstRetry; task.Sleep(ctx, wait); {
		objects, err := Read(k.dir)
		if err == nil && len(objects) == 0 {
			err = fmt.Errorf("%s has no objects: nothing is deleted before it has one", k.dir)
		}
		state, encodeErr := json.Marshal(objects)
		if err = errors.Join(err, encodeErr); err == nil && string(state) == applied {
			wait = look
			continue
		}
		if err == nil {
			err = k.round(ctx, objects)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			k.logger.Info("applied the manifests", "directory", k.dir, "objects", len(objects))
			applied, wait, retry = string(state), look, firstRetry
			k.wrong.Store(nil)
		default:
			if last := k.Problem(); last == nil || last.Error() != err.Error() {
				k.logger.Warn("the manifests are not all applied, and are tried again", "directory", k.dir, "error", err)
			}
			text := err.Error()
			k.wrong.Store(&text)
			wait, retry = retry, min(2*retry, lastRetry)
		}
	}
}

// round applies the objects, and deletes what was applied before and is not among them.
func (k *Keeper) round(ctx context.Context, objects []*unstructured.Unstructured) error {
	record, err := k.typed.CoreV1().ConfigMaps(recordNamespace).Get(ctx, Manager, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		record, err = k.typed.CoreV1().ConfigMaps(recordNamespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: Manager}}, metav1.CreateOptions{FieldManager: Manager})
	}
	if err != nil {
		return err
	}
	lines, left := compare(record.Data[recordObjects], objects)
	if record, err = k.save(ctx, record, append(slices.Clone(lines), left...), record.Data[recordProblems]); err != nil {
		return err
	}
	var problems []error
	k.client.mapper.Reset()
	for _, o := range objects {
		if _, err := k.client.Apply(ctx, o, false); err != nil {
			if o.GetKind() == "Secret" { // the problem is stored, and may quote a value
				err = fmt.Errorf("refused (%s): exeunt diff says why", apierrors.ReasonForError(err))
			}
			problems = append(problems, fmt.Errorf("%s: %w", Name(o), err))
		} else if o.GetKind() == "CustomResourceDefinition" {
			k.client.mapper.Reset()
		}
	}
	left = slices.DeleteFunc(left, func(old string) bool {
		o := parse(old)
		err := k.client.remove(ctx, o)
		if err != nil {
			problems = append(problems, fmt.Errorf("delete %s: %w", Name(o), err))
		}
		return err == nil
	})
	failed := errors.Join(problems...)
	text := ""
	if failed != nil {
		text = failed.Error()
	}
	if text != record.Data[recordProblems] {
		k.event(ctx, record, text)
	}
	_, err = k.save(ctx, record, append(lines, left...), text)
	return errors.Join(failed, err)
}

// compare returns the lines of the objects, and those of the record whose objects are not among them, turned: what others
// need is deleted last.
func compare(record string, objects []*unstructured.Unstructured) (lines, left []string) {
	there := map[string]bool{}
	for _, o := range objects {
		lines, there[identity(o)] = append(lines, line(o)), true
	}
	for old := range strings.Lines(record) {
		if old = strings.TrimSpace(old); old != "" && !there[identity(parse(old))] {
			left = append([]string{old}, left...)
		}
	}
	return lines, left
}

// identity is what an object keeps when a file names another version of its kind, or says the default namespace.
func identity(o *unstructured.Unstructured) string {
	return strings.Join([]string{o.GroupVersionKind().GroupKind().String(), cmp.Or(o.GetNamespace(), metav1.NamespaceDefault), o.GetName()}, " ")
}

// save writes the record, unless it says that already. If another replica has written it, the round is repeated.
func (k *Keeper) save(ctx context.Context, record *corev1.ConfigMap, lines []string, problems string) (*corev1.ConfigMap, error) {
	next := map[string]string{recordObjects: strings.Join(lines, "\n"), recordProblems: problems}
	if record.Data[recordObjects] == next[recordObjects] && record.Data[recordProblems] == problems {
		return record, nil
	}
	record = record.DeepCopy()
	record.Data = next
	return k.typed.CoreV1().ConfigMaps(recordNamespace).Update(ctx, record, metav1.UpdateOptions{FieldManager: Manager})
}

// event records what changed: new problems, or that there are none any more. A failure is not one of the manifests.
func (k *Keeper) event(ctx context.Context, record *corev1.ConfigMap, problems string) {
	now := metav1.Now()
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: Manager + "-", Namespace: recordNamespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: recordNamespace, Name: record.Name, UID: record.UID},
		Type:           corev1.EventTypeWarning, Reason: "NotApplied", Message: problems[:min(len(problems), 1000)],
		Source: corev1.EventSource{Component: "exeunt"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	if problems == "" {
		e.Type, e.Reason, e.Message = corev1.EventTypeNormal, "Applied", "all manifests are applied"
	}
	if _, err := k.typed.CoreV1().Events(recordNamespace).Create(ctx, e, metav1.CreateOptions{}); err != nil {
		k.logger.Warn("record an event of the manifests", "error", err)
	}
}

// line is an object in the record, and parse reads it.
func line(o *unstructured.Unstructured) string {
	return strings.Join([]string{o.GetAPIVersion(), o.GetKind(), cmp.Or(o.GetNamespace(), "-"), o.GetName()}, " ")
}

func parse(line string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	fields := append(strings.Fields(line), "", "", "", "")
	o.SetAPIVersion(fields[0])
	o.SetKind(fields[1])
	if fields[2] != "-" {
		o.SetNamespace(fields[2])
	}
	o.SetName(fields[3])
	return o
}
