// Package auditlog is the audit log of the API, in Kubernetes' format: policy, backends
// and rotation are those of k8s.io/apiserver. It adds two promises that no policy can
// revoke. Every deletion is recorded, and what releases, forces or takes one back, at
// least with its metadata (rulesOf). Secrets and tokens are never written (redact.go).
//
// The package does not know HTTP: the API's filters (api/audit.go) fill in the events.
// Begin reading with Open.
package auditlog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"gopkg.in/natefinch/lumberjack.v2"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
	auditfile "k8s.io/apiserver/plugin/pkg/audit/log"
	auditwebhook "k8s.io/apiserver/plugin/pkg/audit/webhook"
)

// The modes of a backend.
const (
	Batch          = "batch"           // events are queued and written in the background
	Blocking       = "blocking"        // a request waits until its event is written
	BlockingStrict = "blocking-strict" // and fails if its first event cannot be written
)

// closeGrace is how long Close waits for events that a backend has not taken yet.
const closeGrace = 10 * time.Second

// Options configure the log, as the flags of kube-apiserver do. Without LogPath and
// WebhookConfigFile there is none.
type Options struct {
	// PolicyFile is a policy (audit.k8s.io/v1). If it is empty, deletions are recorded, and what
	// concerns them.
	PolicyFile string

	LogPath      string // "-": stdout
	LogMaxAge    int    // days; 0 means no limit
	LogMaxBackup int    // files; 0 means no limit
	LogMaxSize   int    // megabytes; 0 means no rotation
	LogCompress  bool
	LogMode      string // empty means Blocking

	WebhookConfigFile     string // a kubeconfig
	WebhookMode           string // empty means Batch
	WebhookInitialBackoff time.Duration
	WebhookBatch          buffered.BatchConfig
}

// On reports whether there is a log.
func (o *Options) On() bool { return o.LogPath != "" || o.WebhookConfigFile != "" }

// Check refuses options that contradict each other.
func (o *Options) Check() error {
	if !o.On() {
		if o.PolicyFile != "" {
			return errors.New("--audit-policy-file: there is no audit log; add --audit-log-path or --audit-webhook-config-file")
		}
		return nil
	}
	modes := []string{"", Batch, Blocking, BlockingStrict}
	for flag, mode := range map[string]string{"--audit-log-mode": o.LogMode, "--audit-webhook-mode": o.WebhookMode} {
		if !slices.Contains(modes, mode) {
			return fmt.Errorf("%s %q: want %s", flag, mode, strings.Join(modes[1:], ", "))
		}
	}
	if min(o.LogMaxAge, o.LogMaxBackup, o.LogMaxSize) < 0 {
		return errors.New("--audit-log-maxage, --audit-log-maxbackup and --audit-log-maxsize must not be negative")
	}
	b := o.WebhookBatch
	if o.WebhookConfigFile != "" && o.WebhookMode != Blocking && o.WebhookMode != BlockingStrict &&
		(b.BufferSize <= 0 || b.MaxBatchSize <= 0 || b.ThrottleEnable && (b.ThrottleQPS <= 0 || b.ThrottleBurst <= 0)) {
		return errors.New("--audit-webhook-batch-*: sizes and limits must be positive")
	}
	return nil
}

// Log is an open audit log. It is safe for concurrent use.
type Log struct {
	policy  audit.PolicyRuleEvaluator
	backend *redacting
	file    io.Closer // nil means stdout, or no file
	stop    chan struct{}
	log     *slog.Logger
}

// Open opens the log. It returns nil if the options say that there is none.
func Open(o Options, log *slog.Logger) (*Log, error) {
	if err := o.Check(); err != nil || !o.On() {
		return nil, err
	}
	rules := &auditinternal.Policy{Rules: []auditinternal.PolicyRule{{Level: auditinternal.LevelNone}}}
	if o.PolicyFile != "" {
		var err error
		if rules, err = policy.LoadPolicyFromFile(o.PolicyFile); err != nil {
			return nil, fmt.Errorf("--audit-policy-file: %w", err)
		}
	}
	l := &Log{policy: rulesOf(rules), stop: make(chan struct{}), log: log}
	var backends []audit.Backend
	if o.LogPath != "" {
		b, err := l.openFile(o)
		if err != nil {
			return nil, fmt.Errorf("--audit-log-path: %w", err)
		}
		backends = append(backends, b)
	}
	if o.WebhookConfigFile != "" {
		b, err := auditwebhook.NewBackend(o.WebhookConfigFile, auditv1.SchemeGroupVersion, webhook.DefaultRetryBackoffWithInitialDelay(o.WebhookInitialBackoff), nil)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("--audit-webhook-config-file: %w", err), l.closeFile())
		}
		backends = append(backends, inMode(o.WebhookMode, Batch, reporting{b, log}, o.WebhookBatch))
	}
	l.backend = &redacting{Backend: audit.Union(backends...), failed: rate.NewLimiter(failedRate, failedBurst)}
	if err := l.backend.Run(l.stop); err != nil {
		return nil, errors.Join(fmt.Errorf("start the audit log: %w", err), l.closeFile())
	}
	return l, nil
}

// Policy decides what is recorded of a request.
func (l *Log) Policy() audit.PolicyRuleEvaluator { return l.policy }

// Sink takes the events.
func (l *Log) Sink() audit.Sink { return l.backend }

// Dropped is how many failed authentications were not recorded, because there were too
// many. A nil Log has none.
func (l *Log) Dropped() int64 {
	if l == nil {
		return 0
	}
	return l.backend.dropped.Load()
}

// Close writes the events that are queued, and gives up after closeGrace: a webhook
// may not answer. No request may be under way.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	close(l.stop)
	written := make(chan struct{})
	go func() { // ends when the webhook's last retry fails, at the latest
		l.backend.Shutdown()
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(closeGrace):
		l.log.Error("audit events are lost: the webhook did not take them", "waited", closeGrace)
	}
	return l.closeFile()
}

func (l *Log) closeFile() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// openFile opens the log file, so that a path that cannot be written fails the start.
func (l *Log) openFile(o Options) (audit.Backend, error) {
	var out io.Writer = os.Stdout
	if o.LogPath != "-" {
		if err := os.MkdirAll(filepath.Dir(o.LogPath), 0o700); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(o.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		out, l.file = f, f
		if o.LogMaxSize > 0 {
			if err := f.Close(); err != nil {
				return nil, err
			}
			rotated := &lumberjack.Logger{Filename: o.LogPath, MaxAge: o.LogMaxAge, MaxBackups: o.LogMaxBackup, MaxSize: o.LogMaxSize, Compress: o.LogCompress}
			out, l.file = rotated, rotated
		}
	}
	b := auditfile.NewBackend(out, auditfile.FormatJson, auditv1.SchemeGroupVersion)
	// One event per write: batches of a file save nothing.
	return inMode(o.LogMode, Blocking, reporting{b, l.log}, buffered.BatchConfig{BufferSize: 10_000, MaxBatchSize: 1}), nil
}

// inMode wraps a backend as its mode says.
func inMode(mode, otherwise string, b audit.Backend, batch buffered.BatchConfig) audit.Backend {
	mode = cmp.Or(mode, otherwise)
	switch mode {
	case BlockingStrict:
		return b
	case Blocking:
		return lenient{b}
	}
	return buffered.NewBackend(b, batch)
}

// lenient serves a request although its event could not be written.
type lenient struct{ audit.Backend }

func (l lenient) ProcessEvents(events ...*auditinternal.Event) bool {
	l.Backend.ProcessEvents(events...)
	return true
}

// reporting logs that events could not be written: the library's own message goes to
// the debug log.
type reporting struct {
	audit.Backend
	log *slog.Logger
}

func (r reporting) ProcessEvents(events ...*auditinternal.Event) bool {
	ok := r.Backend.ProcessEvents(events...)
	if !ok {
		r.log.Error("audit events could not be written", "backend", r.String(), "events", len(events), "first", events[0].AuditID)
	}
	return ok
}

// rules is a policy with a floor for deletions and a ceiling for secrets.
type rules struct{ audit.PolicyRuleEvaluator }

func rulesOf(p *auditinternal.Policy) rules { return rules{policy.NewPolicyRuleEvaluator(p)} }

// EvaluatePolicyRule says what is recorded of a request.
func (r rules) EvaluatePolicyRule(a authorizer.Attributes) audit.RequestAuditConfig {
	c := r.PolicyRuleEvaluator.EvaluatePolicyRule(a)
	if deletes(a) {
		// No stage is omitted: the first event is written before the transaction, so a
		// server that is killed after its commit leaves a record of the deletion. A client
		// that is not known deletes nothing.
		if c.OmitStages = nil; a.GetUser() == nil || a.GetUser().GetName() == user.Anonymous {
			c.OmitStages = []auditinternal.Stage{auditinternal.StageRequestReceived}
		}
		if c.Level.Less(auditinternal.LevelMetadata) {
			c.Level = auditinternal.LevelMetadata
		}
	}
	if a.IsResourceRequest() && isSecret(a.GetAPIGroup(), a.GetResource(), a.GetSubresource()) && auditinternal.LevelMetadata.Less(c.Level) {
		c.Level = auditinternal.LevelMetadata
	}
	return c
}

// deletes reports whether a request deletes, takes a deletion back, or overrules what holds it.
func deletes(a authorizer.Attributes) bool {
	switch a.GetVerb() {
	case "delete", "deletecollection":
		return true
	case "create":
		return a.GetAPIGroup() == "lifecycle.exeunt.dev" && (a.GetResource() == "finalizerremovals" || a.GetResource() == "restores")
	case "update", "patch":
		return a.GetResource() == "namespaces" && a.GetSubresource() == "finalize"
	}
	return false
}

// ByContent returns a sink and a policy for a request that the policy does not record, and that is
// recorded if its content matters for deletions: the API then adds an annotation with
// DeletionPrefix to its event. Nil if the request is recorded, or not, whatever it contains.
func (l *Log) ByContent(a authorizer.Attributes) (audit.Sink, audit.PolicyRuleEvaluator) {
	if verb := a.GetVerb(); verb != "update" && verb != "patch" || l.policy.EvaluatePolicyRule(a).Level != auditinternal.LevelNone {
		return nil, nil
	}
	return annotated{l.backend}, annotated{}
}

// DeletionPrefix is that of annotations of events about deletions.
const DeletionPrefix = "lifecycle.exeunt.dev/"

// annotated passes events on that have an annotation about deletions.
type annotated struct{ sink audit.Sink }

func (s annotated) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, e := range events {
		for key := range e.Annotations {
			if strings.HasPrefix(key, DeletionPrefix) {
				return s.sink.ProcessEvents(e)
			}
		}
	}
	return true
}

// EvaluatePolicyRule records the end of a request, when its content is known.
func (annotated) EvaluatePolicyRule(authorizer.Attributes) audit.RequestAuditConfig {
	return audit.RequestAuditConfig{Level: auditinternal.LevelMetadata, OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived, auditinternal.StageResponseStarted}}
}
