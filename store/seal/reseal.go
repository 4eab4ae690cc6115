package seal

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// resealStep is how many bodies one transaction seals again.
const resealStep = 64

// Reseal seals with the current sealing key all bodies that are in plain text
// or under an older key, and unseals bodies of kinds that are no longer sealed.
// If replicas lack the first key of this process, it waits for them, and makes it
// the sealing key when all have it. One pass after that is enough: nothing is
// sealed with another key until a server with another first key starts, and that
// server makes its own pass. Two passes at once have the same result. between runs a step between two
// writes of the store.
func (d *Database) Reseal(ctx context.Context, between func(context.Context, func() error) error) error {
	if d.Keys == nil {
		return nil
	}
	for looks := 0; ; looks++ {
		first, err := d.begin(ctx)
		switch {
		case err != nil && !sqldb.Unreachable(err):
			return err
		case err == nil && (first || looks == 0): // a pass with the key before seals what is in plain text
			r := resealing{Database: d, between: between}
			if err := r.run(ctx); err != nil || first {
				return err
			}
		case looks == 3: // all that run have been seen
			d.Logger.Info("not all replicas have the first key: the key before goes on sealing until they have", "key", d.Keys.Names()[0])
		}
		if !task.Sleep(ctx, d.Every) {
			return nil
		}
	}
}

// begin makes the first key of this process the sealing key if no live replica lacks it, and reports whether it is.
// A replica that has just started may not be seen: if it lacks the key, its writes of Secrets fail.
func (d *Database) begin(ctx context.Context) (first bool, err error) {
	state, err := d.Rotation(ctx)
	if err != nil || state.Next == "" {
		return err == nil, err
	}
	if state.Lacking > 0 || !state.known {
		return false, nil
	}
	return true, d.register(ctx, "", true)
}

// Rotation is how far a change of the sealing key is.
type Rotation struct {
	Sealing string `json:"sealing"`           // the key that seals
	Next    string `json:"next,omitempty"`    // the first key of this process, if another one seals
	Lacking int    `json:"lacking,omitempty"` // live replicas without it
	Left    int64  `json:"left"`              // bodies under keys that do not seal; only Progress counts them
	known   bool   // Lacking is
}

func (r *Rotation) String() string {
	switch {
	case r.Lacking > 0:
		return fmt.Sprintf("sealed with %s; replicas still without %s: %d", r.Sealing, r.Next, r.Lacking)
	case r.Left > 0 || r.Next != "":
		return fmt.Sprintf("sealed with %s; bodies left under other keys: %d", r.Sealing, r.Left)
	}
	return fmt.Sprintf("sealed with %s, and nothing with another key: exeunt keys rotate FILE --finish", r.Sealing)
}

// Rotation returns the state of a change of the sealing key.
func (d *Database) Rotation(ctx context.Context) (r Rotation, err error) {
	if _, err := d.DB.Row(ctx, readSealingKey, nil, &r.Sealing); err != nil {
		return r, fmt.Errorf("read the sealing key: %w", err)
	}
	if first := d.Keys.Names()[0]; first != r.Sealing {
		r.Next = first
		r.Lacking, r.known, err = d.DB.Lacking(ctx, announced(first))
	}
	return r, err
}

// Progress is Rotation while the file of this process has several keys, with the number of bodies that are left; nil
// otherwise. It reads all sealed bodies' beginnings.
func (d *Database) Progress(ctx context.Context) (*Rotation, error) {
	if d.Keys == nil || len(d.Keys.keys) == 1 {
		return nil, nil
	}
	r, err := d.Rotation(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range d.Keys.Names() {
		if name == r.Sealing {
			continue
		}
		n, err := countBodies(ctx, d.DB, name)
		if err != nil {
			return nil, err
		}
		r.Left += n
	}
	return &r, nil
}

// resealing is one pass. Owned by one goroutine.
type resealing struct {
	*Database
	between func(context.Context, func() error) error

	table           *table
	with            string // the key of the last step
	changed, failed int
	plain           int // of changed: those that were in plain text
}

func (r *resealing) run(ctx context.Context) error {
	kinds, err := sealedKinds(ctx, r.DB)
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		if err := r.kind(ctx, kind); err != nil {
			return fmt.Errorf("seal %s again: %w", kind, err)
		}
	}
	r.report()
	return nil
}

// report logs the result of the pass.
func (r *resealing) report() {
	if r.plain > 0 {
		r.Logger.Warn("bodies that were in plain text are sealed now; their old text is in unused pages of the database until it is vacuumed: see docs/keys.md",
			"bodies", r.plain)
	}
	switch {
	case r.failed > 0:
		r.Logger.Error("some bodies do not open: keep all keys; the lines above name the objects", "bodies", r.failed)
	case r.with == r.Keys.Names()[0] && (r.changed > 0 || len(r.Keys.Names()) > 1):
		r.Logger.Info("every sealed body is under the first key: other keys may leave the configuration",
			"key", r.with, "sealed again", r.changed)
	}
}

func (r *resealing) kind(ctx context.Context, kind string) error {
	for i := range tables {
		r.table = &tables[i]
		for after, more := int64(math.MinInt64), true; more; { // rows of restored backups are below zero
			err := r.between(ctx, func() (err error) {
				after, more, err = r.step(ctx, kind, after)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// sealedRow is a row of changes or of history: revision is its key.
type sealedRow struct {
	Object
	revision int64
	body     []byte
}

// step is one transaction. It returns the revision after which the next begins.
func (r *resealing) step(ctx context.Context, kind string, after int64) (last int64, more bool, err error) {
	tx, err := r.DB.Begin(ctx)
	if err != nil {
		return 0, false, err
	}
	defer tx.Rollback()
	with, rows, err := r.read(ctx, tx, kind, after)
	if err != nil {
		return 0, false, err
	}
	r.with = with
	var b sqldb.Batch
	for _, row := range rows {
		body, err := r.again(row, with)
		if err != nil {
			r.failed++
			r.Logger.Error("a body does not open", "object", row.Key.String(), "uid", row.UID, "revision", row.revision, "error", err)
			continue
		}
		r.changed++
		if _, sealed := SealedBy(row.body); !sealed {
			r.plain++
		}
		b.Exec(r.table.replace, row.revision, body)
	}
	more = len(rows) == resealStep
	if !more && r.table.last && !r.Keys.Seals(kind) && r.failed == 0 {
		b.Exec(deleteSealedKind, kind)
	}
	if b.Len() == 0 {
		return lastOf(rows, after), more, nil
	}
	if err := tx.Send(ctx, &b); err != nil {
		return 0, false, err
	}
	return lastOf(rows, after), more, tx.Commit(ctx)
}

func lastOf(rows []sealedRow, after int64) int64 {
	if len(rows) == 0 {
		return after
	}
	return rows[len(rows)-1].revision
}

// read returns the sealing key and the next bodies that must be sealed again.
func (r *resealing) read(ctx context.Context, tx *sqldb.Tx, kind string, after int64) (with string, rows []sealedRow, err error) {
	var first sqldb.Batch
	r.lock(&first)
	QueryKey(&first, &with)
	if err := tx.Send(ctx, &first); err != nil {
		return "", nil, err
	}
	if !r.Keys.Has(with) { // another replica has changed it since
		return "", nil, &MissingKeyError{Name: with, Source: r.Keys.Source()}
	}
	statement, prefix := r.table.unsealed, Prefix(with)
	if !r.Keys.Seals(kind) {
		statement, prefix = r.table.sealed, Mark()
	}
	var b sqldb.Batch
	b.Query(sqldb.Into(&rows, func(found *sealedRow) []any {
		found.Kind = kind
		return []any{&found.revision, &found.UID, &found.Namespace, &found.Name, &found.body}
	}), statement, kind, after, prefix, int64(len(prefix)), int64(resealStep))
	return with, rows, tx.Send(ctx, &b)
}

// again returns the body as it must be stored.
func (r *resealing) again(row sealedRow, with string) ([]byte, error) {
	body, err := r.Keys.Open(row.Object, row.body)
	if err != nil || !r.Keys.Seals(row.Kind) {
		return body, err
	}
	return r.Keys.Seal(with, row.Object, body)
}

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
		b.Exec(forgetHistory, kind, Prefix(name), int64(len(Prefix(name))))
		b.Exec(boundHistory, kind)
		b.Exec(countHistory)
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
	b.Query(sqldb.Into(&rows, func(r *givenUp) []any {
		r.key.Kind = kind
		return []any{&r.revision, &r.uid, &r.key.Namespace, &r.key.Name, &r.id, &r.deletion, &r.grace}
	}), readSealedWith, kind, prefix, int64(len(prefix)))
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
