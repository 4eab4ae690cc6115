package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/server"
)

// tuning are the settings that few operators change. The help does not show them;
// docs/reference/commands.md does.
var tuning = []string{
	"audit-log-compress", "audit-log-maxage", "audit-log-maxbackup", "audit-log-maxsize", "audit-webhook-initial-backoff",
	"audit-webhook-batch-buffer-size", "audit-webhook-batch-max-size", "audit-webhook-batch-max-wait",
	"audit-webhook-batch-throttle-burst", "audit-webhook-batch-throttle-enable", "audit-webhook-batch-throttle-qps",
	"database-idle-transaction-timeout", "database-lock-timeout", "database-statement-timeout",
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
			if c.Settings, err = applySettings(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			if err := o.check(); err != nil {
				return err
			}
			if c.MaxCascade < 0 {
				return fmt.Errorf("--max-cascade %d: must not be negative", c.MaxCascade)
			}
			if q := c.RegistryQuotas; min(q.BlobBytes, q.Uploads, q.NamespaceUploads) < 0 {
				return fmt.Errorf("--registry-max-blob-bytes, --registry-max-uploads and --registry-max-uploads-per-namespace must not be negative")
			}
			if c.RegistryRemoveTimeout <= 0 || c.RegistryRemoveTimeout > time.Minute {
				return fmt.Errorf("--registry-remove-timeout %s: must be more than 0 and at most 1m", c.RegistryRemoveTimeout)
			}
			if c.EventTTL < 0 {
				return fmt.Errorf("--event-ttl %s: must not be negative", c.EventTTL)
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
			if c.OrphanWait == 0 {
				c.OrphanWait = -1 // the zero value is the default
			}
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
	f.StringVar(&file, configFlag, "", "YAML `FILE` with further settings, whose keys are the names of these flags")
	f.StringVar(&c.Data, "data", "./data", "directory for certificates, kubeconfig and the embedded database")
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
	f.StringVar(&c.RegistryStorage, "registry-storage", "", "where the registry stores bytes: a `directory` (default blobs in the data directory), or s3://BUCKET/PREFIX?endpoint=URL&region=REGION&part-size=MIB with credentials from the environment")
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
	f.DurationVar(&c.EventTTL, "event-ttl", time.Hour, "how long Events stay after they were last written; 0 keeps them until they are deleted")
	f.BoolVar(&archiveSecrets, "archive-secrets", true, "archive the content of Secrets too, sealed; false keeps only their names")
	addTokenFlags(f, &c.Tokens)
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

// addLogLevel adds --log-level.
func addLogLevel(cmd *cobra.Command, level *slog.Level) {
	cmd.Flags().TextVar(level, "log-level", slog.LevelInfo, "log `level`: DEBUG, INFO, WARN or ERROR")
	complete(cmd, "log-level", words("DEBUG", "INFO", "WARN", "ERROR"))
}

// durations parses the values of a flag that takes several.
func durations(flag string, texts map[string]string) (map[string]time.Duration, error) {
	values := map[string]time.Duration{}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		value, err := time.ParseDuration(texts[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %s=%q is not a duration: write 90m, or 36h", flag, name, texts[name])
		}
		values[name] = value
	}
	return values, nil
}
