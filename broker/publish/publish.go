// Package publish tells others of the events in the broker's outbox: each event
// to each sink, at least once, in the order of the outbox for each resource.
//
// It is a reviewer: a resource with events that somebody has not been told is
// under review until all have been. An event is told first and marked second, so
// a crash in between tells it again, under the same token, by which a sink knows
// it. One sink that fails keeps no other waiting.
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

// Event is an event as sinks get it.
type Event struct {
	Token   broker.OutboxToken
	Type    broker.EventType
	Payload json.RawMessage // of the domain's event
	broker.EventHead
}

// Sink is told of events.
type Sink interface {
	// Name tells it apart in the database. It must never change.
	Name() string
	// Tell returns nil when the event has arrived for good. The same event may
	// come again; its token says that it is the same.
	Tell(ctx context.Context, event Event) error
}

// Outbox is where events wait: sqlbroker.Repository.
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

// Review leaves all to the telling, outside the transaction.
func (p *Publisher) Review(_ context.Context, _ review.Tx, _ time.Time, tasks []review.Task) ([]review.Verdict, error) {
	verdicts := make([]review.Verdict, len(tasks))
	for i, task := range tasks {
		id := broker.ProvisionedResourceID(task.Key)
		verdicts[i] = review.Acted().Then(func(ctx context.Context) error { return p.publish(ctx, id) })
	}
	return verdicts, nil
}

// publish tells every sink what it has not been told of a resource.
func (p *Publisher) publish(ctx context.Context, id broker.ProvisionedResourceID) error {
	var errs []error
	for _, sink := range p.sinks {
		if err := p.tell(ctx, id, sink); err != nil {
			errs = append(errs, fmt.Errorf("publish to %s: %w", sink.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// tell goes through the events in order and stops at the first that fails: what
// comes after it must not arrive before it.
func (p *Publisher) tell(ctx context.Context, id broker.ProvisionedResourceID, sink Sink) error {
	envelopes, err := p.outbox.Unpublished(ctx, id, sink.Name())
	if err != nil {
		return err
	}
	for _, e := range envelopes {
		event := Event{Token: e.Token, Type: e.Type, Payload: e.Payload}
		if err := json.Unmarshal(e.Payload, &event.EventHead); err != nil {
			return fmt.Errorf("read %s: %w", e.Token, err)
		}
		if err := sink.Tell(ctx, event); err != nil {
			return err
		}
		if err := p.outbox.MarkPublished(ctx, e.Token, sink.Name()); err != nil {
			return err
		}
	}
	return nil
}
