package seal

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// ContentLost is the label of objects whose content was sealed with a lost key and
// was given up.
const ContentLost = "lifecycle.exeunt.dev/content-lost"

// givenUp is a row of changes whose body cannot be opened any more. id, deletion
// and grace are those of the object if the row is its current state.
type givenUp struct {
	revision, id, deletion, grace int64
	key                           object.Key
	uid                           string
	owners                        []metav1.OwnerReference
}

// giveUp replaces every body that is sealed with a lost key.
// The new body has what the other columns say: name, uid, owners, deletion. So an
// object keeps its identity, and no dependent of it is collected. Labels,
// annotations, finalizers and content are lost. It runs in the transaction that
// registers the keys, before any request is served.
func (d *Database) giveUp(ctx context.Context, tx *sqldb.Tx, name string) error {
	if d.Keys.Has(name) {
		return fmt.Errorf("key %q is in %s, so it is not lost: start without giving it up", name, d.Keys.Source())
	}
	kinds, err := sealedKinds(ctx, tx)
	if err != nil {
		return err
	}
	bodies := 0
	for _, kind := range kinds {
		rows, err := readGivenUp(ctx, tx, kind, Prefix(name))
		if err != nil {
			return err
		}
		var b sqldb.Batch
		for i := range rows {
			body, err := rows[i].body()
			if err != nil {
				return err
			}
			b.Exec(replaceBody, rows[i].revision, body)
			b.Exec(endFinalizing, rows[i].id)
		}
		if err := tx.Send(ctx, &b); err != nil {
			return fmt.Errorf("give up %s sealed with key %q: %w", kind, name, err)
		}
		bodies += len(rows)
	}
	d.Logger.Warn("gave up what was sealed with a lost key: these objects have no content and the label "+ContentLost+"; delete them or write them again",
		"key", name, "bodies", bodies)
	return nil
}

// readGivenUp reads the rows of a kind whose body begins with prefix.
func readGivenUp(ctx context.Context, tx *sqldb.Tx, kind string, prefix []byte) (rows []givenUp, err error) {
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		r := givenUp{key: object.Key{Kind: kind}}
		err := row.Scan(&r.revision, &r.uid, &r.key.Namespace, &r.key.Name, &r.id, &r.deletion, &r.grace)
		rows = append(rows, r)
		return err
	}, readSealedWith, kind, prefix, int64(len(prefix)))
	if err := tx.Send(ctx, &b); err != nil {
		return nil, err
	}
	b = sqldb.Batch{}
	for i := range rows {
		b.Query(func(row sqldb.Row) error {
			var group string
			var o metav1.OwnerReference
			var blocking, controller bool
			err := row.Scan((*string)(&o.UID), &blocking, &controller, &group, &o.Kind, &o.Name)
			o.APIVersion, o.BlockOwnerDeletion, o.Controller = "v1", &blocking, &controller
			if group != "" {
				o.APIVersion = group + "/v1" // the version is not stored, and the collector ignores it
			}
			rows[i].owners = append(rows[i].owners, o)
			return err
		}, readOwnersOf, rows[i].id)
	}
	return rows, tx.Send(ctx, &b)
}

// body returns the object without its content, in stored form.
func (r *givenUp) body() ([]byte, error) {
	m := metav1.ObjectMeta{
		Name: r.key.Name, Namespace: r.key.Namespace, UID: types.UID(r.uid),
		Labels: map[string]string{ContentLost: "true"}, OwnerReferences: r.owners,
	}
	if r.deletion != 0 {
		at := metav1.NewTime(time.Unix(r.deletion, 0))
		m.DeletionTimestamp, m.DeletionGracePeriodSeconds = &at, &r.grace
	}
	o := struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Type     string            `json:"type,omitempty"`
	}{Metadata: m}
	if r.key.Kind == "secrets" {
		o.Type = "Opaque"
	}
	return json.Marshal(o)
}
