// Package publish delivers the events in the broker's outbox: each event to
// each sink, at least once, in outbox order for each resource.
//
// The publisher is a reviewer: a resource with undelivered events stays under
// review until every sink has all of them. It delivers an event first and marks
// it second, so a crash in between delivers it again, under the same token, by
// which a sink recognises it. A sink that fails does not delay the others.
package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
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

// Log writes events into a log.
type Log struct{ Logger *slog.Logger }

// Name is "log".
func (Log) Name() string { return "log" }

// Deliver writes one log line.
func (l Log) Deliver(ctx context.Context, e Event) error {
	l.Logger.InfoContext(ctx, string(e.Type), "token", string(e.Token), "resource", string(e.ProvisionedResourceID),
		"project", string(e.ProjectID), "xr", e.XRName, "occurred", e.OccurredAt)
	return nil
}

// Webhook posts events to a URL, as CloudEvents 1.0 in JSON. Only a 2xx answer
// counts as delivered; a redirect does not. The token is the CloudEvent's id
// and the header Idempotency-Key.
type Webhook struct {
	URL    string
	Client *http.Client // nil means one with a timeout
}

// webhookTime bounds one attempt.
const webhookTime = 10 * time.Second

// Name is "webhook".
func (Webhook) Name() string { return "webhook" }

// Deliver posts the event and waits for the answer.
func (w Webhook) Deliver(ctx context.Context, e Event) error {
	body, err := json.Marshal(map[string]any{
		"specversion": "1.0", "id": e.Token, "type": e.Type, "source": "/exeunt/broker",
		"subject": fmt.Sprintf("%s/%s", e.ProjectID, e.ProvisionedResourceID),
		"time":    e.OccurredAt.UTC().Format(time.RFC3339Nano), "datacontenttype": "application/json", "data": e.Payload,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, webhookTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/cloudevents+json")
	req.Header.Set("Idempotency-Key", string(e.Token))
	resp, err := w.client().Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("answered %s", resp.Status)
	}
	return nil
}

func (w Webhook) client() *http.Client {
	if w.Client != nil {
		return w.Client
	}
	return &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
