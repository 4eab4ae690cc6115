// Package health has the checks behind /healthz, /livez and /readyz.
package health

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Timeout bounds the checks of one probe.
const Timeout = 5 * time.Second

// Check says why a part of the server is not ready, or nil.
type Check struct {
	Name string
	Run  func(context.Context) error
}

// Log logs a check when its result changes, and not with each probe. The first
// failures of a check belong to the start: they are for debugging.
type Log struct {
	mu      sync.Mutex
	passed  map[string]bool   // checks that have passed once; guarded by mu
	failing map[string]string // the last reason of each check that fails; guarded by mu
}

// Note logs the result of a check. One that is expected to fail is for debugging too.
func (p *Log) Note(log *slog.Logger, check string, err error, expected bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, failing := p.failing[check]
	switch {
	case err == nil && !failing:
		if !p.passed[check] {
			p.pass(check)
		}
	case err == nil:
		delete(p.failing, check)
		if p.passed[check] {
			log.Info("ready again", "check", check)
		}
		p.pass(check)
	case failing && before == err.Error():
	default:
		if p.failing == nil {
			p.failing = map[string]string{}
		}
		p.failing[check] = err.Error()
		level := slog.LevelWarn
		if !p.passed[check] || expected {
			level = slog.LevelDebug
		}
		log.Log(context.Background(), level, "not ready", "check", check, "error", err)
	}
}

// pass remembers that a check has passed. The caller holds mu.
func (p *Log) pass(check string) {
	if p.passed == nil {
		p.passed = map[string]bool{}
	}
	p.passed[check] = true
}
