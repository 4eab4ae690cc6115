// Package sqlbroker stores provisioned resources and their outbox in SQLite or
// PostgreSQL. It is the broker's Repository and its Emitter, and holds the
// leases of the rounds.
//
// Each method is one transaction, and each comparison that the ports ask for is
// in the statement that writes, or under the lock of the resource's row. A
// transaction that puts an event into the outbox holds that lock, so the outbox
// has the events of a resource in the order in which they became true.
//
// It knows no cluster and decides nothing. Triggers put what it writes under
// review: see schema. Begin with [Repository].
package sqlbroker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/internal/tracing"
	"github.com/exeunt/exeunt/sqldb"
)

// Repository implements broker.Repository and broker.Emitter. It is safe for
// concurrent use.
type Repository struct {
	db  *sqldb.DB
	now func() time.Time
}

// New makes a repository. now is the clock; nil is time.Now.
func New(db *sqldb.DB, now func() time.Time) *Repository {
	if now == nil {
		now = time.Now
	}
	return &Repository{db: db, now: now}
}

// exec runs one statement in a transaction of its own.
func (r *Repository) exec(ctx context.Context, statement string, args ...any) error {
	return r.db.Transact(ctx, func(tx *sqldb.Tx) error { return tx.Exec(ctx, statement, args...) })
}

// returned runs one statement and reports whether it returned a row.
func returned(ctx context.Context, tx *sqldb.Tx, statement string, args ...any) (bool, error) {
	return sqldb.First(ctx, tx, []any{new(string)}, statement, args...)
}

// missed says why a comparison failed: the resource has changed, or is gone.
func missed(ctx context.Context, tx *sqldb.Tx, id broker.ProvisionedResourceID) error {
	found, err := returned(ctx, tx, find, string(id))
	if err != nil {
		return err
	}
	if !found {
		return broker.ErrProvisionedResourceNotFound
	}
	return broker.ErrPhaseConflict
}

// Create stores a new resource with its first event.
func (r *Repository) Create(ctx context.Context, resource broker.ProvisionedResource) error {
	s := resource.State()
	parameters, err := encodeParameters(s.Parameters)
	if err != nil {
		return fmt.Errorf("create provisioned resource %s: %w", s.ID, err)
	}
	err = r.db.Transact(ctx, func(tx *sqldb.Tx) error {
		created, err := returned(ctx, tx, insert,
			string(s.ID), string(s.Project), s.Name, s.Blueprint.Name, s.Blueprint.Version, string(s.Credential), parameters,
			s.XR.APIVersion, s.XR.Kind, s.ProviderConfig.APIVersion, s.ProviderConfig.Kind,
			s.Deadline.Milliseconds(), s.RequestDigest, string(s.Phase), r.now().UnixMilli(), string(s.TokenID),
			s.CreatedAt.UnixMilli(), s.ConvergeStartedAt.UnixMilli())
		if err != nil {
			return err
		}
		if !created {
			return broker.ErrProvisionedResourceExists
		}
		return r.emit(ctx, tx, resource.RequestedEvent())
	})
	if err != nil {
		return fmt.Errorf("create provisioned resource %s: %w", s.ID, err)
	}
	return nil
}

// Get reads a resource.
func (r *Repository) Get(ctx context.Context, id broker.ProvisionedResourceID) (broker.ProvisionedResource, error) {
	resource, _, err := r.get(ctx, id)
	return resource, err
}

// get reads a resource and the start of its phase.
func (r *Repository) get(ctx context.Context, id broker.ProvisionedResourceID) (broker.ProvisionedResource, time.Time, error) {
	fail := func(err error) (broker.ProvisionedResource, time.Time, error) {
		return broker.ProvisionedResource{}, time.Time{}, fmt.Errorf("get provisioned resource %s: %w", id, err)
	}
	var s broker.State
	var parameters string
	var deadline, since, created, started, deletion int64
	found, err := r.db.Row(ctx, get, []any{string(id)},
		(*string)(&s.ID), (*string)(&s.Project), &s.Name, &s.Blueprint.Name, &s.Blueprint.Version, (*string)(&s.Credential), &parameters,
		&s.XR.APIVersion, &s.XR.Kind, &s.ProviderConfig.APIVersion, &s.ProviderConfig.Kind,
		&deadline, &s.RequestDigest, (*string)(&s.Phase), &since, (*string)(&s.TokenID), &created, &started, &deletion)
	if err == nil && !found {
		err = broker.ErrProvisionedResourceNotFound
	}
	if err != nil {
		return fail(err)
	}
	if s.Parameters, err = decodeParameters(parameters); err != nil {
		return fail(err)
	}
	s.Deadline = time.Duration(deadline) * time.Millisecond
	s.CreatedAt, s.ConvergeStartedAt = time.UnixMilli(created).UTC(), time.UnixMilli(started).UTC()
	if deletion != 0 {
		s.DeletionRequestedAt = time.UnixMilli(deletion).UTC()
	}
	resource, err := broker.Restore(s)
	return resource, time.UnixMilli(since).UTC(), err
}

// UpdatePhase replaces the phase that the round has read.
func (r *Repository) UpdatePhase(ctx context.Context, from broker.ProvisionedResourcePhase, resource broker.ProvisionedResource) error {
	s := resource.State()
	err := r.db.Transact(ctx, func(tx *sqldb.Tx) error {
		written, err := returned(ctx, tx, updatePhase, string(s.ID), string(from), string(s.Phase), s.ConvergeStartedAt.UnixMilli(), r.now().UnixMilli())
		if err != nil || written {
			return err
		}
		return missed(ctx, tx, s.ID)
	})
	if err != nil {
		return fmt.Errorf("update phase of %s from %s to %s: %w", s.ID, from, s.Phase, err)
	}
	return nil
}

// BindToken replaces the token that the round has read.
func (r *Repository) BindToken(ctx context.Context, id broker.ProvisionedResourceID, previous, token broker.BootstrapTokenID) error {
	err := r.db.Transact(ctx, func(tx *sqldb.Tx) error {
		bound, err := returned(ctx, tx, bindToken, string(id), string(previous), string(token))
		if err != nil || bound {
			return err
		}
		return missed(ctx, tx, id)
	})
	if err != nil {
		return fmt.Errorf("bind token to %s: %w", id, err)
	}
	return nil
}

// RecordDeletionIntent begins the teardown, once.
func (r *Repository) RecordDeletionIntent(ctx context.Context, resource broker.ProvisionedResource) error {
	s := resource.State()
	err := r.db.Transact(ctx, func(tx *sqldb.Tx) error {
		recorded, err := returned(ctx, tx, requestDeletion, string(s.ID), string(s.Phase), s.DeletionRequestedAt.UnixMilli(), r.now().UnixMilli())
		if err != nil {
			return err
		}
		if recorded {
			return r.emit(ctx, tx, resource.DeletingEvent())
		}
		found, err := returned(ctx, tx, find, string(s.ID))
		if err == nil && !found {
			err = broker.ErrProvisionedResourceNotFound
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("record deletion intent of %s: %w", s.ID, err)
	}
	return nil
}

// Emit puts an event into the outbox.
func (r *Repository) Emit(ctx context.Context, from broker.ProvisionedResourcePhase, event broker.Event) error {
	id := event.Head().ProvisionedResourceID
	err := r.db.Transact(ctx, func(tx *sqldb.Tx) error {
		same, err := returned(ctx, tx, lockInPhase, string(id), string(from))
		if err != nil {
			return err
		}
		if !same {
			return missed(ctx, tx, id)
		}
		return r.emit(ctx, tx, event)
	})
	if err != nil {
		return fmt.Errorf("emit %s of %s: %w", event.EventType(), id, err)
	}
	return nil
}

// emit stores an event, or does nothing if its token is stored. The transaction
// has locked the resource's row. The delivery of the event belongs to the trace of the round.
func (r *Repository) emit(ctx context.Context, tx *sqldb.Tx, event broker.Event) error {
	payload, err := json.Marshal(event)
	if err != nil {
		return err
	}
	head := event.Head()
	var b sqldb.Batch
	trace := tracing.Traceparent(ctx)
	if trace != "" {
		b.MarkTraces(r.db.Engine(), map[string]string{"": trace})
	}
	b.Exec(insertEvent, string(head.EventID), string(head.ProvisionedResourceID), string(event.EventType()), string(payload), head.OccurredAt.UnixMilli())
	if trace != "" {
		b.UnmarkTraces(r.db.Engine())
	}
	return tx.Send(ctx, &b)
}

// encodeParameters keeps the types of numbers: a float64 always has a point or
// an exponent, an int64 never.
func encodeParameters(parameters broker.Parameters) (string, error) {
	out := make(map[string]any, len(parameters))
	for name, value := range parameters {
		out[name] = value
		if f, ok := value.(float64); ok {
			text, err := json.Marshal(f)
			if err != nil {
				return "", fmt.Errorf("parameter %s: %w", name, err)
			}
			if !bytes.ContainsAny(text, ".e") {
				text = append(text, ".0"...)
			}
			out[name] = json.RawMessage(text)
		}
	}
	text, err := json.Marshal(out)
	return string(text), err
}

func decodeParameters(text string) (broker.Parameters, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var parameters broker.Parameters
	if err := decoder.Decode(&parameters); err != nil {
		return nil, fmt.Errorf("decode parameters: %w", err)
	}
	for name, value := range parameters {
		number, ok := value.(json.Number)
		if !ok {
			continue
		}
		var err error
		if strings.ContainsAny(number.String(), ".eE") {
			parameters[name], err = number.Float64()
		} else {
			parameters[name], err = number.Int64()
		}
		if err != nil {
			return nil, fmt.Errorf("decode parameter %s: %w", name, err)
		}
	}
	return parameters, nil
}

// KindsInUse lists the kinds of composite resources and ProviderConfigs of
// resources that are not Deleted: reconcile.Substrates.
func (r *Repository) KindsInUse(ctx context.Context) ([]broker.ObjectType, error) {
	var kinds []broker.ObjectType
	if err := sqldb.Each(ctx, r.db, func(row sqldb.Row) error {
		var k broker.ObjectType
		err := row.Scan(&k.APIVersion, &k.Kind)
		kinds = append(kinds, k)
		return err
	}, kindsInUse); err != nil {
		return nil, fmt.Errorf("read kinds in use: %w", err)
	}
	return kinds, nil
}

// MakeDue makes a resource due, if it is under review: reconcile.Substrates.
func (r *Repository) MakeDue(ctx context.Context, id broker.ProvisionedResourceID, due time.Time) error {
	if err := r.exec(ctx, makeDue, string(id), due.UnixMilli()); err != nil {
		return fmt.Errorf("make %s due: %w", id, err)
	}
	return nil
}

// Envelope is a row of the outbox.
type Envelope struct {
	Token   broker.OutboxToken
	Type    broker.EventType
	Payload []byte // JSON of the event
}

// Unpublished lists the events of a resource that the sink does not have yet,
// in order.
func (r *Repository) Unpublished(ctx context.Context, id broker.ProvisionedResourceID, sink string) ([]Envelope, error) {
	var all []Envelope
	if err := sqldb.Each(ctx, r.db, func(row sqldb.Row) error {
		var e Envelope
		var payload string
		err := row.Scan((*string)(&e.Token), (*string)(&e.Type), &payload)
		e.Payload = []byte(payload)
		all = append(all, e)
		return err
	}, pending, string(id), sink); err != nil {
		return nil, fmt.Errorf("read outbox of %s for %s: %w", id, sink, err)
	}
	return all, nil
}

// MarkPublished records a delivery. It follows the delivery, so a crash in
// between delivers the event twice, under one token, and never loses it.
func (r *Repository) MarkPublished(ctx context.Context, token broker.OutboxToken, sink string) error {
	if err := r.exec(ctx, markPublished, string(token), sink); err != nil {
		return fmt.Errorf("mark %s published to %s: %w", token, sink, err)
	}
	return nil
}
