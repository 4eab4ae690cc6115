package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"
)

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
