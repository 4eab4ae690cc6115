package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/server"
)

// addAuditFlags adds the flags of the audit log, with the names and defaults of
// kube-apiserver.
func addAuditFlags(cmd *cobra.Command, c *server.Config) {
	f, a := cmd.Flags(), &c.Audit
	f.StringVar(&a.PolicyFile, "audit-policy-file", "", "`FILE` with the audit policy (audit.k8s.io/v1); without it only deletions are recorded, which no policy can turn off")
	f.StringVar(&a.LogPath, "audit-log-path", "", "`FILE` for the audit log, one JSON event per line; - is stdout; empty: no log")
	f.IntVar(&a.LogMaxAge, "audit-log-maxage", 366, "how many days rotated audit logs are kept; 0: no limit")
	f.IntVar(&a.LogMaxBackup, "audit-log-maxbackup", 100, "how many rotated audit logs are kept; 0: no limit")
	f.IntVar(&a.LogMaxSize, "audit-log-maxsize", 100, "size in megabytes at which the audit log is rotated; 0: never")
	f.BoolVar(&a.LogCompress, "audit-log-compress", false, "compress rotated audit logs with gzip")
	f.StringVar(&a.LogMode, "audit-log-mode", "blocking", "blocking: a request waits until its event is written; blocking-strict: and fails if it cannot be; batch: events are written in the background")
	f.StringVar(&a.WebhookConfigFile, "audit-webhook-config-file", "", "kubeconfig `FILE` of a server that receives audit events")
	f.StringVar(&a.WebhookMode, "audit-webhook-mode", "batch", "as --audit-log-mode, for the webhook")
	f.DurationVar(&a.WebhookInitialBackoff, "audit-webhook-initial-backoff", 10*time.Second, "how long to wait before the first retry of the webhook")
	b := &a.WebhookBatch
	b.AsyncDelegate = true
	f.IntVar(&b.BufferSize, "audit-webhook-batch-buffer-size", 10_000, "how many events wait for the webhook; further ones are dropped, and only the debug log says so")
	f.IntVar(&b.MaxBatchSize, "audit-webhook-batch-max-size", 400, "the most events in one call of the webhook")
	f.DurationVar(&b.MaxBatchWait, "audit-webhook-batch-max-wait", 30*time.Second, "the longest time that an event waits for a full batch")
	f.BoolVar(&b.ThrottleEnable, "audit-webhook-batch-throttle-enable", true, "limit the rate of batches")
	f.Float32Var(&b.ThrottleQPS, "audit-webhook-batch-throttle-qps", 10, "average batches per second")
	f.IntVar(&b.ThrottleBurst, "audit-webhook-batch-throttle-burst", 15, "batches at once after a quiet time")
	for _, flag := range []string{"audit-log-mode", "audit-webhook-mode"} {
		complete(cmd, flag, words("blocking", "blocking-strict", "batch"))
	}
}
