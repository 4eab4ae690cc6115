package sqlbroker

import (
	"context"
	"fmt"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/sqldb"
)

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
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		var e Envelope
		var payload string
		err := row.Scan((*string)(&e.Token), (*string)(&e.Type), &payload)
		e.Payload = []byte(payload)
		all = append(all, e)
		return err
	}, pending, string(id), sink)
	if err := r.db.Read(ctx, nil, &b); err != nil {
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
