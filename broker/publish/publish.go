// Package publish delivers the events in the broker's outbox: each event to
// each sink, at least once, in outbox order for each resource.
//
// The publisher is a reviewer: a resource with undelivered events stays under
// review until every sink has all of them. It delivers an event first and marks
// it second, so a crash in between delivers it again, under the same token, by
// which a sink recognises it. A sink that fails does not delay the others.
package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/sqlbroker"
	"github.com/exeunt/exeunt/review"
)

// Event is an event in the form that sinks receive.
type Event struct {
	Token   broker.OutboxToken
	Type    broker.EventType
	Payload json.RawMessage // of the domain's event
	broker.EventHead
}

// Sink receives events.
type Sink interface {
	// Name identifies the sink in the database. It must never change.
	Name() string
	// Deliver returns nil when the sink has the event durably. The publisher
	// may deliver the same event again, under the same token.
	Deliver(ctx context.Context, event Event) error
}

// Outbox holds events until they are delivered: sqlbroker.Repository.
type Outbox interface {
	Unpublished(ctx context.Context, id broker.ProvisionedResourceID, sink string) ([]sqlbroker.Envelope, error)
	MarkPublished(ctx context.Context, token broker.OutboxToken, sink string) error
}

// Queue is the table that the publisher works off.
var Queue = review.Queue{
	Name: "provisioned-resource-events", Table: "provisioned_resource_outbox_reviews", Key: "resource_id",
	Batch: 8, Effects: 8, Lease: 30 * time.Second, Idle: time.Second,
	Backoff: review.Backoff{Base: time.Second, Cap: time.Minute},
}

// Publisher implements review.Reviewer.
type Publisher struct {
	outbox Outbox
	sinks  []Sink
}

// New makes a publisher.
func New(outbox Outbox, sinks ...Sink) *Publisher { return &Publisher{outbox, sinks} }

// Review defers all deliveries to effects, outside the transaction.
func (p *Publisher) Review(_ context.Context, _ review.Tx, _ time.Time, tasks []review.Task) ([]review.Verdict, error) {
	verdicts := make([]review.Verdict, len(tasks))
	for i, task := range tasks {
		id := broker.ProvisionedResourceID(task.Key)
		verdicts[i] = review.Acted().Then(func(ctx context.Context) error { return p.publish(ctx, id) })
	}
	return verdicts, nil
}

// publish delivers to every sink the events of a resource that it does not
// have.
func (p *Publisher) publish(ctx context.Context, id broker.ProvisionedResourceID) error {
	var errs []error
	for _, sink := range p.sinks {
		if err := p.deliver(ctx, id, sink); err != nil {
			errs = append(errs, fmt.Errorf("publish to %s: %w", sink.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// deliver sends the events in order and stops at the first failure, because
// later events must not arrive before it.
func (p *Publisher) deliver(ctx context.Context, id broker.ProvisionedResourceID, sink Sink) error {
	envelopes, err := p.outbox.Unpublished(ctx, id, sink.Name())
	if err != nil {
		return err
	}
	for _, e := range envelopes {
		event := Event{Token: e.Token, Type: e.Type, Payload: e.Payload}
		if err := json.Unmarshal(e.Payload, &event.EventHead); err != nil {
			return fmt.Errorf("read %s: %w", e.Token, err)
		}
		if err := sink.Deliver(ctx, event); err != nil {
			return err
		}
		if err := p.outbox.MarkPublished(ctx, e.Token, sink.Name()); err != nil {
			return err
		}
	}
	return nil
}
