package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"cmp"

	"github.com/exeunt/exeunt/cmd/exeunt/settings"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/server"
)

// tuning are the settings that few operators change. The help does not show them;
// docs/reference/commands.md does.
var tuning = []string{
	"audit-log-compress", "audit-log-maxage", "audit-log-maxbackup", "audit-log-maxsize", "audit-webhook-initial-backoff",
	"audit-webhook-batch-buffer-size", "audit-webhook-batch-max-size", "audit-webhook-batch-max-wait",
	"audit-webhook-batch-throttle-burst", "audit-webhook-batch-throttle-enable", "audit-webhook-batch-throttle-qps",
	"database-idle-transaction-timeout", "database-lock-timeout", "database-statement-timeout", "disk-reserve-bytes",
	"mesh-heartbeat", "oidc-groups-prefix", "oidc-scopes", "oidc-username-prefix", "orphan-observed-generation-timeout",
	"registry-collect-blobs", "registry-collect-manifests", "registry-collect-signatures",
	"registry-max-uploads-per-namespace", "registry-remove-timeout", "slow-request", "stall-timeout",
}

// newServe returns the command that calls run, server.Run, with the configuration
// that the flags give.
func newServe(run func(context.Context, server.Config) error) *cobra.Command {
	var c server.Config
	var level slog.Level
	var collect, collectManifests, collectBlobs, collectSignatures, createRepositories, createNamespaces, archiveSecrets bool
	var reviewAfter map[string]string
	var o output
	var file string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the Kubernetes API",
		Long: `Serve the Kubernetes API over an embedded SQLite database, or over PostgreSQL.

The first start creates certificates and an administrator's kubeconfig in the data
directory. Stop the server with Ctrl-C or SIGTERM: it finishes the requests that it
is serving. It may be killed at any moment: every acknowledged write is on disk.

Each flag can also be a key of the --config file (listen: 0.0.0.0:6443) or an
environment variable (EXEUNT_LISTEN). A flag overrides the variable, and the variable
overrides the file. SIGHUP reads the file again, and applies what needs no restart.

docs/reference/commands.md also has the settings for tuning, which are not below.`,
		Example: `  exeunt serve
  exeunt serve --config /etc/exeunt/exeunt.yaml
  exeunt serve --data /var/lib/exeunt --listen 0.0.0.0:6443 --tls-san exeunt.example.com
  exeunt serve --database postgres://exeunt@db.example/exeunt --registry-storage s3://exeunt-blobs`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			given := givenFlags(cmd.Flags()) // before environment and file
			if c.Settings, err = settings.Apply(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			if err := o.check(); err != nil {
				return err
			}
			if err := checkKept(&c); err != nil {
				return err
			}
			if q := c.RegistryQuotas; min(q.BlobBytes, q.Uploads, q.NamespaceUploads) < 0 {
				return fmt.Errorf("--registry-max-blob-bytes, --registry-max-uploads and --registry-max-uploads-per-namespace must not be negative")
			}
			if c.RegistryRemoveTimeout <= 0 || c.RegistryRemoveTimeout > time.Minute {
				return fmt.Errorf("--registry-remove-timeout %s: must be more than 0 and at most 1m", c.RegistryRemoveTimeout)
			}
			c.Version = version()
			c.NoCollector = !collect
			c.ArchiveNoSecrets = !archiveSecrets
			c.RegistryKeepManifests, c.RegistryKeepBlobs = !collectManifests, !collectBlobs
			c.RegistryKeepSignatures = !collectSignatures
			c.RegistryDeclared, c.RegistryNoNamespaces = !createRepositories, !createNamespaces
			if c.RegistryReviewAfter, err = durations("--registry-review-after", reviewAfter); err != nil {
				return err
			}
			c.OrphanWait = cmp.Or(c.OrphanWait, -1) // the zero value is the default
			for _, limit := range []*time.Duration{&c.SlowRequest, &c.StatementTimeout, &c.LockTimeout, &c.IdleTransactionTimeout} {
				if *limit == 0 {
					*limit = -1 // the zero value is the default
				}
			}
			c.Started = func(a server.Addresses) {
				// Not fatal: the server works without a reader of this message.
				_ = o.print(cmd.OutOrStdout(), document{value: a, text: func(p *printer) { fmt.Fprint(p, a) }})
			}
			var levels slog.LevelVar
			levels.Set(level)
			c.LogLevel, c.SetLogLevel = level, levels.Set
			c.Logger = slog.New(slog.NewTextHandler(screen{os.Stderr}, &slog.HandlerOptions{Level: &levels}))
			c.ReadAgain = func() (server.Config, error) {
				next, err := readConfig(cmd.Context(), given)
				if err != nil {
					return next, err
				}
				return next, server.Check(next)
			}
			return run(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, settings.ConfigFlag, "", "YAML `FILE` with further settings, whose keys are the names of these flags")
	f.StringVar(&c.Data, "data", "./data", "directory for certificates, kubeconfig and the embedded database")
	f.BoolVar(&c.Ephemeral, "ephemeral", false, "for tests: keep the data in a directory that is removed at the end unless --data names one, never wait for the disk, listen on free ports unless they are set, and stop when the parent process ends")
	f.StringVar(&c.Listen, "listen", "127.0.0.1:6443", "address of the API, `HOST:PORT`; port 0 picks a free one")
	f.StringSliceVar(&c.TLSNames, "tls-san", nil, "further `NAME` or address for the serving certificate, repeatable; localhost, the machine's own name and, if the server listens on all addresses, its own addresses are in it")
	f.StringVar(&c.ServiceRange, "service-cluster-ip-range", "10.96.0.0/12", "`RANGE` of the cluster addresses of Services, IPv4, the same on all replicas")
	f.StringVar(&c.TLSFiles.Cert, "tls-cert-file", "", "`FILE` with a serving certificate and its chain, for clients that use its names; read again when it changes")
	f.StringVar(&c.TLSFiles.Key, "tls-private-key-file", "", "`FILE` with the key of --tls-cert-file")
	f.StringVar(&c.AuthorityDir, "authority-dir", "", "`DIR` with ca.crt and ca.key, the certificate authority of all replicas, which the first start copies (default: the first start makes one); the command keys create makes it")
	f.StringVar(&c.TLSFiles.ClientCA, "client-ca-file", "", "`FILE` with authorities whose client certificates the server accepts besides those of its own; read again when it changes")
	f.StringVar(&c.RegistryListen, "registry-listen", "127.0.0.1:5000", "address of the OCI registry, `HOST:PORT`; port 0 picks a free one, empty leaves the registry off; plain HTTP on loopback, TLS elsewhere")
	f.BoolVar(&c.RegistryAnonymous, "registry-anonymous", false, "let clients without credentials do everything in a registry on loopback: for tests and demonstrations")
	f.Int64Var(&c.RegistryQuotas.BlobBytes, "registry-max-blob-bytes", 0, "size limit of a blob; 0: no limit")
	f.Int64Var(&c.RegistryQuotas.Uploads, "registry-max-uploads", 0, "how many uploads may be under way in the registry, on all replicas together; further ones get 429; 0: no limit")
	f.Int64Var(&c.RegistryQuotas.NamespaceUploads, "registry-max-uploads-per-namespace", 0, "how many uploads may be under way in one namespace; 0: no limit")
	f.StringSliceVar(&c.RegistryHosts, "registry-host", nil, "further `NAME` that a registry on loopback accepts in the Host header, repeatable; it refuses all others but localhost and loopback addresses, because web pages can send them")
	f.BoolVar(&c.RegistryAcceptStorage, "registry-accept-storage", false, "accept --registry-storage for this database although it has no id, or another database's id: after its bytes were lost; for one start")
	f.StringVar(&c.RegistryStorage, "registry-storage", "", "where the registry stores bytes: a `directory` (default blobs in the data directory), or s3://BUCKET/PREFIX?endpoint=URL&region=REGION&part-size=MIB with credentials from the environment; s3://…,from=DIRECTORY moves the bytes of a directory there while the registry serves")
	f.BoolVar(&c.RegistryRedirect, "registry-redirect", false, "redirect clients to S3 for the bytes of blobs")
	f.StringToStringVar(&reviewAfter, "registry-review-after", nil, "delay between an event of the registry and the review of its subject, `EVENT=DURATION,...`, for instance tag_delete=72h; events that are not named keep their last value, initially a day")
	f.BoolVar(&createRepositories, "registry-create-repositories", true, "the first push to a path creates its Repository; false refuses pushes to paths without a Repository")
	f.BoolVar(&createNamespaces, "registry-create-namespaces", true, "the first push into a namespace creates it; false refuses pushes into missing namespaces")
	f.BoolVar(&collectManifests, "registry-collect-manifests", true, "collect manifests without a tag, a list or a subject; false leaves them in their queue")
	f.BoolVar(&collectBlobs, "registry-collect-blobs", true, "collect blobs that no manifest uses; false leaves them in their queue")
	f.BoolVar(&collectSignatures, "registry-collect-signatures", true, "collect the tags that cosign made for an image (sha256-….sig, .att, .sbom) with the image; false leaves them")
	f.DurationVar(&c.RegistryRemoveTimeout, "registry-remove-timeout", 30*time.Second, "how long the collector waits for the removal of one blob's bytes before it retries later; at most 1m")
	f.StringVar(&c.Database, "database", "", "postgres:// URL, or path of a SQLite file (default exeunt.db in the data directory)")
	f.DurationVar(&c.StatementTimeout, "database-statement-timeout", 2*time.Minute, "how long PostgreSQL works on one statement; 0: no limit")
	f.DurationVar(&c.LockTimeout, "database-lock-timeout", time.Minute, "how long a statement waits for a lock in PostgreSQL; 0: no limit")
	f.DurationVar(&c.IdleTransactionTimeout, "database-idle-transaction-timeout", 10*time.Second, "how long a transaction in PostgreSQL may wait for its next statement; 0: no limit")
	f.BoolVar(&collect, "enable-garbage-collector", true, "collect objects whose owners are gone; false leaves them, and everything that waits for the collector")
	f.DurationVar(&c.OrphanWait, "orphan-observed-generation-timeout", 10*time.Second, "how long a delete with --cascade=orphan waits for the owner's controller to report status.observedGeneration, so that it does not adopt the dependents again; 0: no wait")
	f.Int64Var(&c.MaxCascade, "max-cascade", 0, "how many objects a delete may remove without confirmation, unless the Namespace's annotation lifecycle.exeunt.dev/max-cascade says otherwise; 0: no limit")
	f.DurationVar(&c.ArchiveFor, "archive-for", 24*time.Hour, "how long removed objects can be restored, unless their Namespace's annotation lifecycle.exeunt.dev/archive-for says otherwise; 0: no archive")
	f.Int64Var(&c.ArchiveMaxBytes, "archive-max-bytes", 1<<30, "size limit of the archive, in fair shares of the namespaces; their oldest cascades leave first")
	f.StringVar(&c.Manifests, "manifests", "", "a `DIR` with manifests that the server applies at its start and after each change; what has left it is deleted")
	f.StringVar(&c.BackupTo, "backup-to", "", "a directory, or s3://BUCKET/PREFIX, for backups that the server makes by itself, one replica at a time (default: none)")
	f.DurationVar(&c.BackupEvery, "backup-every", 24*time.Hour, "how old the last backup becomes before --backup-to gets the next; an hour later the server's status has a problem")
	f.StringSliceVar(&c.BackupRecipients, "backup-recipients", nil, "encrypt the backups in --backup-to for these `age1…` recipients of age (default: do not)")
	f.IntVar(&c.BackupKeep, "backup-keep", 14, "how many backups stay in --backup-to: the newest; 0: all")
	addHistoryFlags(f, &c)
	f.Int64Var(&c.DiskReserve, "disk-reserve-bytes", 64<<20, "space that is kept for deletions on the disk of a SQLite database, at most a sixteenth of it: when it is needed, what grows is refused; 0: none")
	f.DurationVar(&c.EventTTL, "event-ttl", time.Hour, "how long Events stay after they were last written; 0 keeps them until they are deleted")
	f.BoolVar(&archiveSecrets, "archive-secrets", true, "archive the content of Secrets too, sealed; false keeps only their names")
	addTokenFlags(f, &c)
	f.StringVar(&c.ServiceAccountIssuer, "service-account-issuer", "https://kubernetes.default.svc", "issuer of service account tokens and their default audience, a `URL` that is the same on all replicas")
	f.StringVar(&c.EncryptionConfig, "encryption-provider-config", "", "`FILE` with the keys that seal Secrets in the database, an EncryptionConfiguration as for kube-apiserver (default encryption.yaml in the data directory, created at the first start)")
	f.StringVar(&c.GiveUpKey, "encryption-give-up-key", "", "`NAME` of a key that is lost for good: everything that is sealed with it loses its content, and keeps its name; for the first start without the key, with all other replicas stopped")
	f.IntVar(&c.MaxRequests, "max-requests-inflight", 600, "how many requests the API and the registry each serve at once; further ones get 429. Requests that wait for their client, and watches, do not count")
	f.DurationVar(&c.StallTimeout, "stall-timeout", 30*time.Second, "how long a client may read nothing of its answer (list, watch, blob) before the server closes the connection")
	f.DurationVar(&c.MeshHeartbeat, "mesh-heartbeat", 10*time.Second, "interval of heartbeats of mesh nodes; a node without heartbeat for four intervals is unreachable")
	f.StringVar(&c.ManagementKubeconfig, "management-kubeconfig", "", "kubeconfig `FILE` of the cluster in which the broker creates resources (default: this server)")
	f.StringVar(&c.OTLPEndpoint, "otlp-endpoint", "", "`URL` of an OpenTelemetry collector that receives traces of deletions, by OTLP over HTTP, for instance http://localhost:4318 (default: no traces)")
	f.StringVar(&c.EventsWebhook, "events-webhook", "", "`URL` that receives the broker's events, as CloudEvents in JSON")
	f.StringVar(&c.EnrolURL, "enrol-url", "", "`URL` at which machines that the broker creates reach this server (default: the address in its kubeconfig)")
	f.DurationVar(&c.SlowRequest, "slow-request", 500*time.Millisecond, "log requests that take longer, with their steps; watches, uploads and the bytes of pulls do not count; 0: none")
	f.BoolVar(&c.LogRequests, "log-requests", false, "log every request to the API and the registry, with its client, status and duration")
	addAuditFlags(cmd, &c)
	for _, name := range tuning {
		f.Lookup(name).Hidden = true
	}
	addLogLevel(cmd, &level)
	o.addFlag(cmd)
	f.Lookup("output").Usage = "`format` of the start message (version, addresses, kubeconfig): json, yaml (default: text); json is one line"
	o.oneLine = true
	return cmd
}

// addHistoryFlags adds the flags of the history of objects.
func addHistoryFlags(f *pflag.FlagSet, c *server.Config) {
	f.DurationVar(&c.HistoryFor, "history-for", 7*24*time.Hour, "how long earlier versions of objects are kept after they were replaced, unless their Namespace's annotation lifecycle.exeunt.dev/history-for says otherwise; 0: none are")
	f.Int64Var(&c.HistoryMaxBytes, "history-max-bytes", 1<<30, "size limit of earlier versions, in fair shares of the namespaces; their oldest versions leave first")
	f.StringSliceVar(&c.HistoryExclude, "history-exclude", []string{"leases.coordination.k8s.io", "events", "endpointslices.discovery.k8s.io", "endpoints"}, "`KIND` whose earlier versions are not kept, as PLURAL.GROUP, repeatable: those that change all the time")
}

// checkKept refuses limits that mean nothing.
func checkKept(c *server.Config) error {
	switch {
	case c.MaxCascade < 0:
		return fmt.Errorf("--max-cascade %d: must not be negative", c.MaxCascade)
	case c.EventTTL < 0:
		return fmt.Errorf("--event-ttl %s: must not be negative", c.EventTTL)
	case c.HistoryFor < 0:
		return fmt.Errorf("--history-for %s: must not be negative", c.HistoryFor)
	case c.HistoryMaxBytes < 1:
		return fmt.Errorf("--history-max-bytes %d: must be positive; --history-for=0 turns the history off", c.HistoryMaxBytes)
	}
	return nil
}

// addLogLevel adds --log-level.
func addLogLevel(cmd *cobra.Command, level *slog.Level) {
	cmd.Flags().TextVar(level, "log-level", slog.LevelInfo, "log `level`: DEBUG, INFO, WARN or ERROR")
	complete(cmd, "log-level", words("DEBUG", "INFO", "WARN", "ERROR"))
}

// durations parses the values of a flag that takes several.
func durations(flag string, texts map[string]string) (map[string]time.Duration, error) {
	values := map[string]time.Duration{}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		value, err := lifecycle.ParseDuration(texts[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %s=%q is not a duration: write 90m, or 36h", flag, name, texts[name])
		}
		values[name] = value
	}
	return values, nil
}

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

// addTokenFlags adds the flags of further sources of tokens, with kube-apiserver's names.
func addTokenFlags(f *pflag.FlagSet, c *server.Config) {
	o := &c.Tokens
	f.StringVar(&c.ServiceAccountKeys.Signing, "service-account-signing-key-file", "", "`FILE` with the private key that signs service account tokens, the same on all replicas (default: keys that the server makes and rotates)")
	f.StringSliceVar(&c.ServiceAccountKeys.Verifying, "service-account-key-file", nil, "further `FILE` with keys or certificates that verify service account tokens, repeatable; for --service-account-signing-key-file")
	f.StringVar(&o.Config, "authentication-config", "", "`FILE` with an AuthenticationConfiguration as for kube-apiserver: OpenID Connect issuers, with claims in CEL, instead of the --oidc flags")
	f.StringVar(&c.AuthorizationConfig, "authorization-config", "", "`FILE` with an AuthorizationConfiguration as for kube-apiserver: RBAC, and webhooks before and after it (default: RBAC)")
	f.StringVar(&o.File, "token-auth-file", "", "`FILE` of hashed bearer tokens, read again when it changes: lines of sha256:HEX,USER,UID,\"GROUP,GROUP\"")
	f.StringVar(&o.OIDC.Issuer, "oidc-issuer-url", "", "`URL` of an OpenID Connect provider whose ID tokens are accepted")
	f.StringVar(&o.OIDC.ClientID, "oidc-client-id", "", "client ID that the provider's tokens must be for")
	f.StringVar(&o.OIDC.UsernameClaim, "oidc-username-claim", "sub", "claim with the user's name")
	f.StringVar(&o.OIDC.UsernamePrefix, "oidc-username-prefix", "", "prefix of the user's name (default: the issuer and #; - is none)")
	f.StringVar(&o.OIDC.GroupsClaim, "oidc-groups-claim", "", "claim with the user's groups")
	f.StringVar(&o.OIDC.GroupsPrefix, "oidc-groups-prefix", "", "prefix of the groups")
	f.StringVar(&o.OIDC.CAFile, "oidc-ca-file", "", "`FILE` with the provider's certificate authority (default: the system's)")
	f.StringVar(&o.OIDC.ClientSecretFile, "oidc-client-secret-file", "", "`FILE` with the client's secret, for signing in to the console at the provider (default: none, a public client)")
	f.StringSliceVar(&o.OIDC.Scopes, "oidc-scopes", []string{"profile", "email"}, "`SCOPES` that the console asks the provider for, beside openid")
}

// runServer is server.Run with reloads by SIGHUP, if there is a file to read. Without one
// SIGHUP ends the server, as when its terminal closes.
func runServer(ctx context.Context, c server.Config) error {
	if slices.ContainsFunc(c.Settings, func(s server.Setting) bool { return s.Name == settings.ConfigFlag && s.Value != "" }) {
		signals := make(chan os.Signal, 1) // signals that come before one is taken become one
		signal.Notify(signals, syscall.SIGHUP)
		defer signal.Stop(signals)
		c.Reload = signals
	}
	if c.Ephemeral {
		return server.RunEphemeral(ctx, c)
	}
	return server.Run(ctx, c)
}

// givenFlags returns the flags of the command line, in the form that their Set reads.
func givenFlags(flags *pflag.FlagSet) map[string]string {
	given := map[string]string{}
	flags.Visit(func(f *pflag.Flag) {
		text := f.Value.String()
		switch value := f.Value.(type) {
		case pflag.SliceValue:
			text = settings.CommaSeparated(value.GetSlice())
		default:
			if f.Value.Type() == "stringToString" {
				text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
			}
		}
		given[f.Name] = text
	})
	return given
}

// readConfig returns the configuration that a server would have that starts now with these
// flags: it reads environment and file.
func readConfig(ctx context.Context, given map[string]string) (c server.Config, err error) {
	serve := newServe(func(_ context.Context, read server.Config) error {
		c = read
		return nil
	})
	serve.SetContext(ctx)
	settings.ReadUnits(serve)
	for name, text := range given {
		if err := serve.Flags().Set(name, text); err != nil {
			return c, err
		}
	}
	return c, serve.RunE(serve, nil)
}
