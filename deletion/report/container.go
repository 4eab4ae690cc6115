package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/exeunt/exeunt/deletion"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// goesWith returns the reasons of an object that is not DELETING yet, but whose namespace, or
// the definition of its kind, is: it waits for its turn.
func (t *reporter) goesWith(h *store.Stored) (out []v1.Reason, err error) {
	for _, key := range []object.Key{{Kind: object.Namespaces, Name: h.Namespace}, {Kind: object.Definitions, Name: h.Kind}} {
		if key.Name == "" {
			continue
		}
		c, err := t.r.Get(t.ctx, key)
		if err != nil {
			return nil, err
		}
		if c == nil || c.Deletion == 0 {
			continue
		}
		ref := t.reference(key, "")
		reason := v1.Reason{Type: v1.ReasonGoesWith, Message: "it goes with " + deletion.Describe(ref), Resolve: "see what it waits for: exeunt why " + deletion.Target(ref)}
		switch {
		case c.Held():
			reason.Message += ", whose deletion waits to be confirmed"
		case key.Kind == object.Namespaces:
			err = t.turn(h, c, &reason)
		default:
			reason.Message += ", which is being emptied"
		}
		if err != nil {
			return nil, err
		}
		out = append(out, reason)
	}
	return out, nil
}

// turn says what leaves a terminating namespace before an object: an earlier wave. If it is the
// object's turn, the collector has to act.
func (t *reporter) turn(h, namespace *store.Stored, reason *v1.Reason) error {
	present, err := t.r.Kinds(t.ctx, h.Namespace)
	if err != nil {
		return err
	}
	wave := gc.Waves(present)[0] // the object's own kind is present
	if slices.Contains(wave, h.Kind) {
		reason.Message += ", which is being emptied"
		reason.Children, err = t.collector(namespace.UID)
		return err
	}
	n, err := t.r.Count(t.ctx, wave[0], h.Namespace, math.MaxInt64)
	if err != nil {
		return err
	}
	reason.Message += fmt.Sprintf(", after %d of kind %s", n, t.kindName(wave[0]))
	reason.Children, err = t.children(v1.ReasonContent, 0, -1, func() ([]*store.Stored, error) {
		return t.r.Select(t.ctx, store.Selection{Kind: wave[0], Namespace: h.Namespace, State: store.Deleting, Limit: maxChildren})
	})
	return err
}
