package expiry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/exeunt/exeunt/kind/event"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// notice is how long before its time an object with the label lifecycle.AnnounceExpiry gets an Event.
const notice = 24 * time.Hour

var announceLabel = []byte(`"` + lifecycle.AnnounceExpiry + `":`)

// announces reports whether an object with a stored body gets an Event before it expires.
func announces(body []byte) bool {
	if !bytes.Contains(body, announceLabel) {
		return false
	}
	m, err := object.ParseMeta(body)
	if err != nil {
		return false
	}
	value, ok := m.Labels[lifecycle.AnnounceExpiry]
	return ok && value != "false"
}

// announce records an Event about an object that expires within the notice, once for each time at which it expires. It returns when
// to look again, if the object expires later; the zero time if not.
func (e *Expirer) announce(ctx context.Context, j judge, o *store.Stored, restored time.Time) (look time.Time, err error) {
	if !announces(o.Body) {
		return look, nil
	}
	j.may = nil // it takes nothing
	d, err := j.decide(ctx, o, restored, j.now.Add(notice))
	if d.By == "" {
		return look, err
	}
	if look = d.At.Add(-notice); look.After(j.now) {
		return look, err
	}
	return time.Time{}, errors.Join(err, e.say(ctx, o, d))
}

// say records the Event, unless the row of the queue says that this was done. Both are one transaction, so that no crash and no other
// replica loses the Event or repeats it.
func (e *Expirer) say(ctx context.Context, o *store.Stored, d Due) error {
	if e.beforeSay != nil {
		e.beforeSay()
	}
	return e.store.Transact(ctx, func(tx *store.Tx) error {
		h, found, err := tx.Head(ctx, o.Key)
		if err != nil || !found || h.UID != o.UID || h.Deletion != 0 {
			return err
		}
		if found, err = sqldb.First(ctx, tx, []any{new(string)}, setAnnounced, string(o.UID), d.At.UnixMilli()); err != nil || !found {
			return err
		}
		return event.Recorder{Kinds: e.opts.Kinds}.Record(ctx, tx, e.opts.Now(), event.Event{
			About: o.Object, Type: corev1.EventTypeNormal, Reason: "Expires", Source: User, Until: d.At,
			Message: fmt.Sprintf("it expires at %s by %s; exeunt keep exempts it", d.At.UTC().Format(time.RFC3339), d.By),
		})
	})
}
