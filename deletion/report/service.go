// Package report answers why an object, or a namespace, still exists
// ([Service.Report]): the finalizers on it and who set them, its grace period,
// what it waits for as a tree, and the state of its review; and what to do about
// each.
//
// A report reads one snapshot of the database and writes nothing. It has no rules
// of its own: gc.Classify says what keeps an object, package preview counts what
// the guard holds, and a [Keeper] explains the finalizer of another part of this
// server. It lists the first of many objects, and not all: a person reads it.
//
// The package has no HTTP code: the question is a kind ([Service.Kind]) whose
// objects are answered and never stored. Begin with report.go.
package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/deletion/preview"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/store"
)

// Options configure a Service. Zero values are the defaults.
type Options struct {
	Now func() time.Time
	// CollectorOff says that no collector runs in this process.
	CollectorOff bool
	// OrphanWait is the collector's option. Default gc.DefaultOrphanWait.
	OrphanWait time.Duration
	// Keepers are the parts of this server that set finalizers, by finalizer.
	Keepers map[string]Keeper
}

// Service answers reports. It is safe for concurrent use.
type Service struct {
	store    *store.Store
	kinds    *kind.Registry
	previews *preview.Service
	opts     Options
}

// New makes a service. The previews count the cascades that the guard holds.
func New(st *store.Store, kinds *kind.Registry, previews *preview.Service, o Options) (*Service, error) {
	if st == nil || kinds == nil || previews == nil {
		return nil, errors.New("new report service: store, kinds and previews must be set")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.OrphanWait = cmp.Or(o.OrphanWait, gc.DefaultOrphanWait)
	return &Service{store: st, kinds: kinds, previews: previews, opts: o}, nil
}

// Kind returns the kind of the question, for the kind registry.
func (s *Service) Kind() *kind.Kind {
	return kind.NewQuestion(v1.Scheme(), &v1.DeletionReport{}, "deletionreports", v1.Schema(v1.DeletionReport{}), s.answer)
}

func (s *Service) answer(ctx context.Context, obj runtime.Object, call kind.Call) (runtime.Object, error) {
	r, ok := obj.(*v1.DeletionReport)
	if !ok {
		return nil, fmt.Errorf("report: got a %T", obj)
	}
	out := r.DeepCopy()
	out.ManagedFields = nil
	var err error
	out.Status, err = s.Report(ctx, call.Client, r.Spec)
	if err != nil {
		return nil, err
	}
	return out, nil
}
