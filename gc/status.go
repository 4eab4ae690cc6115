package gc

import (
	"context"
	"fmt"
	"time"
)

// shownFailing bounds the failing reviews in a Status.
const shownFailing = 20

// Status is the state of the collector, for operators.
type Status struct {
	Paused   bool       `json:"paused"`
	Reason   string     `json:"reason,omitempty"`   // why it is paused
	Depth    int        `json:"depth"`              // reviews in the queue
	Overdue  int        `json:"overdue"`            // of them, due
	Claimed  int        `json:"claimed"`            // of them, under review
	Failing  int        `json:"failing"`            // of them, failed last time
	Oldest   *time.Time `json:"oldest,omitempty"`   // when the oldest review was queued
	Failures []Failure  `json:"failures,omitempty"` // those with the most attempts
}

// Failure is a review that failed last time.
type Failure struct {
	UID       string    `json:"uid"`
	Kind      string    `json:"kind,omitempty"` // of the object, if it exists
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	Event     string    `json:"event"` // the reason that enqueued it
	Attempts  int       `json:"attempts"`
	Next      time.Time `json:"next"`
	Error     string    `json:"error"`
}

// Status reads the switch and the queue.
func (c *Collector) Status(ctx context.Context) (Status, error) {
	var s Status
	var err error
	if s.Paused, s.Reason, err = c.readPaused(ctx); err != nil {
		return Status{}, err
	}
	stats, err := c.engine.Stats(ctx)
	if err != nil {
		return Status{}, err
	}
	s.Depth, s.Overdue, s.Claimed, s.Failing = stats.Depth, stats.Overdue, stats.Claimed, stats.Failing
	if !stats.Oldest.IsZero() {
		oldest := stats.Oldest.UTC()
		s.Oldest = &oldest
	}
	if s.Failing > 0 {
		s.Failures, err = c.failures(ctx)
	}
	return s, err
}

func (c *Collector) failures(ctx context.Context) ([]Failure, error) {
	rows, err := c.db.Query(ctx, failing, shownFailing)
	if err != nil {
		return nil, fmt.Errorf("list failing reviews: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var out []Failure
	for rows.Next() {
		var f Failure
		var next int64
		if err := rows.Scan(&f.UID, &f.Kind, &f.Namespace, &f.Name, &f.Event, &f.Attempts, &next, &f.Error); err != nil {
			return nil, fmt.Errorf("list failing reviews: %w", err)
		}
		f.Next = time.UnixMilli(next).UTC()
		out = append(out, f)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list failing reviews: %w", err)
	}
	return out, nil
}
