package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/auditlog"
	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/internal/tracing/otlp"
	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/sqldb"
)

// KubernetesMinor is the minor version of the Kubernetes API that the server serves.
const KubernetesMinor = api.KubernetesMinor

// Config configures a server. The zero value of a field is its default.
type Config struct {
	// Data is the directory that holds certificates, the kubeconfig and, by
	// default, the database. Default ./data.
	Data string
	// Listen is the API's address, HOST:PORT; port 0 picks one. Default
	// 127.0.0.1:6443.
	Listen string
	// Tokens are further sources of tokens: a file, an OpenID Connect provider.
	Tokens access.TokenOptions
	// ServiceAccountIssuer is the issuer of service account tokens, and their default
	// audience: the same on all replicas. Default https://kubernetes.default.svc.
	ServiceAccountIssuer string
	// ServiceRange is the range of the cluster addresses of Services. Default
	// 10.96.0.0/12.
	ServiceRange string
	// TLSNames are additional host names and addresses for the serving certificate,
	// which always has localhost and the machine's own name.
	TLSNames []string
	// TLSFiles are certificates that an administrator provides. Default: those of the
	// authority in the data directory.
	TLSFiles access.Files
	// RegistryListen is the OCI registry's address, HOST:PORT; port 0 picks one.
	// Empty means no registry. On loopback it serves plain HTTP, elsewhere TLS.
	RegistryListen string
	// RegistryAnonymous lets clients without credentials do everything in a registry on
	// loopback.
	RegistryAnonymous bool
	// RegistryQuotas limit what clients can store in the registry. Default: no limits.
	RegistryQuotas registry.Quotas
	// RegistryHosts are additional host names of a registry on loopback. It refuses
	// requests for other names, because web pages may send them (DNS rebinding).
	RegistryHosts []string
	// RegistryAcceptStorage accepts a blob store that has no id, or the id of another
	// database, and gives it this database's id.
	RegistryAcceptStorage bool
	// RegistryReviewAfter sets, per event, how long after a registry event its subject
	// is reviewed. Other events keep the value in the database.
	RegistryReviewAfter map[string]time.Duration
	// RegistryKeepManifests and RegistryKeepBlobs stop the collection of the
	// registry's manifests and blobs. Garbage stays in the review queues.
	RegistryKeepManifests, RegistryKeepBlobs bool
	// RegistryKeepSignatures keeps the tags that cosign made for an image when the
	// image is collected.
	RegistryKeepSignatures bool
	// RegistryRemoveTimeout limits one removal of a blob's bytes. Default 30 seconds.
	RegistryRemoveTimeout time.Duration
	// RegistryDeclared refuses pushes to a repository without a Repository object.
	// Otherwise the first push creates the object.
	RegistryDeclared bool
	// RegistryNoNamespaces refuses pushes into a namespace that does not exist.
	// Otherwise the first push creates it.
	RegistryNoNamespaces bool
	// RegistryStorage is where the registry stores blobs: a directory, or
	// s3://BUCKET/PREFIX as blobstore.Open takes it. Default: blobs in Data.
	RegistryStorage string
	// RegistryRedirect redirects clients to S3 for the bytes of blobs.
	RegistryRedirect bool
	// Database is a postgres:// URL or the path of a SQLite file. Default
	// exeunt.db in Data.
	Database string
	// StatementTimeout, LockTimeout and IdleTransactionTimeout are limits that PostgreSQL
	// keeps for the connections of this server. Default 2 minutes, 1 minute, 1 minute;
	// negative means no limit.
	StatementTimeout, LockTimeout, IdleTransactionTimeout time.Duration
	// NoCollector turns the garbage collector of this server off. Garbage waits in the
	// queue until a server runs with a collector.
	NoCollector bool
	// ServiceAccountKeys are files with the keys of service account tokens, as kube-apiserver has
	// them. Without Signing the server makes keys, and keeps them in a Secret.
	ServiceAccountKeys struct {
		Signing   string
		Verifying []string
	}
	// AuthorizationConfig is the file of an AuthorizationConfiguration. Empty: RBAC.
	AuthorizationConfig string
	// NoControllers leaves off what kube-controller-manager does in a cluster, and what
	// Kubernetes does not have: the tasks of controllerTasks, and the default
	// ServiceAccounts. With it NoCollector is true.
	NoControllers bool
	// NoAccountAdmission leaves new pods without the token of their ServiceAccount, which
	// need not exist: Kubernetes' admission plugin ServiceAccount is off.
	NoAccountAdmission bool
	// Ephemeral says that the data is temporary: no write to SQLite waits for the disk.
	Ephemeral bool
	// OrphanWait limits how long orphaning waits until the owner's controller reports
	// that it has seen the deletion. Default 10 seconds; negative: no wait.
	OrphanWait time.Duration
	// MaxCascade is how many objects a delete may remove without confirmation, the
	// object itself included. A Namespace's annotation overrides it. 0 means no limit.
	MaxCascade int64
	// ArchiveFor is how long removed objects can be restored. A Namespace's annotation
	// overrides it. 0 means no archive.
	ArchiveFor time.Duration
	// DiskReserve is how many bytes are kept free for deletions on the disk of a SQLite database, at most
	// a sixteenth of it. 0 means none.
	DiskReserve int64
	// Manifests is a directory or file whose objects the server applies and keeps in step. Empty means none.
	Manifests string
	// BackupTo is a directory or s3://BUCKET/PREFIX for backups that the server makes. Empty if it makes none.
	BackupTo string
	// BackupEvery is how old the last backup may become. Default a day. BackupKeep is how many stay; 0 means all.
	BackupEvery time.Duration
	BackupKeep  int
	// BackupRecipients are those of age for whom the backups are encrypted. Empty if they are not.
	BackupRecipients []string
	// ArchiveMaxBytes limits the archive; the oldest entries leave first. Default 1 GiB.
	ArchiveMaxBytes int64
	// ArchiveNoSecrets archives the metadata of removed Secrets without their content.
	ArchiveNoSecrets bool
	// HistoryFor is how long earlier versions of objects are kept. A Namespace's annotation
	// overrides it. 0 means that none are.
	HistoryFor time.Duration
	// HistoryMaxBytes limits them; the oldest leave first. Default 1 GiB.
	HistoryMaxBytes int64
	// HistoryExclude has the kinds whose versions are not kept: PLURAL.GROUP.
	HistoryExclude []string
	// EventTTL is how long Events stay after their last write. 0 means until they are
	// deleted.
	EventTTL time.Duration
	// AuthorityDir is a directory with ca.crt and ca.key, the certificate authority of all
	// replicas; the first start copies it. If it is empty, the first start makes one.
	AuthorityDir string
	// EncryptionConfig is the file with the keys that encrypt Secrets in the database,
	// an EncryptionConfiguration as for kube-apiserver. Default: encryption.yaml in
	// Data, created at the first start.
	EncryptionConfig string
	// GiveUpKey names a lost key: the content of everything that is sealed with it is
	// given up at the start. If it is empty, a database that needs a lost key is refused.
	GiveUpKey string
	// MeshHeartbeat is the interval of the heartbeats of mesh nodes. After four missed
	// heartbeats a node is unreachable. Default 10 seconds.
	MeshHeartbeat time.Duration
	// ManagementKubeconfig is the kubeconfig of the cluster in which the broker creates
	// resources. Default: this server.
	ManagementKubeconfig string
	// EventsWebhook is a URL that receives the broker's events. Empty means none.
	EventsWebhook string
	// EnrolURL is the URL at which machines that the broker creates reach this server.
	// Default: the address in the kubeconfig.
	EnrolURL string
	// MaxRequests limits the requests that the API and the registry each serve at
	// once. Requests that wait for their client, and watches, do not count. Default 600.
	MaxRequests int
	// StallTimeout is how long a client may read nothing of its answer before the
	// server closes the connection. Default 30 seconds.
	StallTimeout time.Duration
	// SlowRequest is the time after which a request is logged with its steps. Default
	// 500 milliseconds; negative: none is.
	SlowRequest time.Duration
	// OTLPEndpoint is the URL of an OpenTelemetry collector that receives traces of
	// deletions, by OTLP over HTTP. Empty means no traces.
	OTLPEndpoint string
	tracer       trace.Tracer // nil means no traces; set by Run
	sockets      sockets      // that systemd passed; set by Run
	// LogRequests logs every request to the API and the registry.
	LogRequests bool
	// Audit configures the audit log of the API. Default: none.
	Audit auditlog.Options
	// Settings are the flags behind this configuration, for /debug/config.
	Settings []Setting
	// Reload asks for ReadAgain, which returns a checked configuration: what can change
	// while the server runs takes effect (reloader). Nil means never.
	Reload    <-chan os.Signal
	ReadAgain func() (Config, error)
	// LogLevel is the level of Logger, and SetLogLevel changes it. Nil if it never changes.
	LogLevel    slog.Level
	SetLogLevel func(slog.Level)
	// Version is the version of this program.
	Version string
	// Started is called once, when the server accepts connections. Default: print the
	// addresses to os.Stdout.
	Started func(Addresses)
	// Logger receives the log. Default slog.Default.
	Logger *slog.Logger

	// Tests shorten these. Default: renewEvery, and the store's.
	renewEvery, compactEvery time.Duration
	ringEvents               int
}

// Setting is one value in force, without secrets.
type Setting struct {
	Name   string `json:"name"`   // of the flag
	Value  string `json:"value"`  // passwords are masked
	Source string `json:"source"` // default, flag, environment NAME, or FILE:LINE
	// Pending is a value that waits for a restart, after a reload. Nil if there is none.
	Pending *string `json:"pending,omitempty"`
	// Raw is the value with its secrets. Only a reload compares it.
	Raw string `json:"-"`
}

// Check reports whether Run would refuse the configuration by itself. It opens no database
// and no listener.
func Check(c Config) error {
	c = c.withDefaults()
	if err := errors.Join(checkAddresses(c), sqldb.Check(c.Database), checkStorage(c)); err != nil {
		return err
	}
	if c.OTLPEndpoint != "" {
		if err := otlp.Check(c.OTLPEndpoint); err != nil {
			return err
		}
	}
	if err := checkBackups(c); err != nil {
		return err
	}
	return c.Audit.Check()
}

func (c Config) withDefaults() Config {
	c.ServiceAccountIssuer = cmp.Or(c.ServiceAccountIssuer, "https://kubernetes.default.svc")
	c.ServiceRange = cmp.Or(c.ServiceRange, "10.96.0.0/12")
	c.Data = cmp.Or(c.Data, "data")
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:6443")
	c.Database = cmp.Or(c.Database, filepath.Join(c.Data, "exeunt.db"))
	c.RegistryStorage = cmp.Or(c.RegistryStorage, filepath.Join(c.Data, "blobs"))
	c.BackupEvery = cmp.Or(c.BackupEvery, backupUsual)
	if c.StallTimeout <= 0 {
		c.StallTimeout = 30 * time.Second
	}
	c.StatementTimeout = cmp.Or(c.StatementTimeout, 2*time.Minute)
	c.LockTimeout = cmp.Or(c.LockTimeout, time.Minute)
	c.IdleTransactionTimeout = cmp.Or(c.IdleTransactionTimeout, time.Minute)
	c.SlowRequest = cmp.Or(c.SlowRequest, 500*time.Millisecond)
	if c.Started == nil {
		c.Started = func(a Addresses) { fmt.Print(a) }
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.NoCollector = c.NoCollector || c.NoControllers
	return c
}

// reloadable are the settings that a reload applies. All others need a restart, except
// for the content of certificate and token files, which the server follows by itself.
var reloadable = map[string]bool{
	"log-level": true, "log-requests": true, "slow-request": true, "max-cascade": true,
	"registry-max-blob-bytes": true, "registry-max-uploads": true, "registry-max-uploads-per-namespace": true,
}

// reloader reads the configuration again when a signal asks for it.
type reloader struct {
	signals <-chan os.Signal       // nil means no reloads
	read    func() (Config, error) // checks what it read
	apply   func(Config)           // the reloadable settings
	log     *slog.Logger

	settings atomic.Pointer[[]Setting] // in force
}

func (s *server) newReloader() *reloader {
	r := &reloader{signals: s.config.Reload, read: s.config.ReadAgain, apply: s.apply, log: s.config.Logger}
	r.settings.Store(&s.config.Settings)
	return r
}

// apply puts the reloadable settings of a configuration in force. Each is applied by
// itself: a request that runs meanwhile may meet one new and one old value.
func (s *server) apply(c Config) {
	c = c.withDefaults()
	if s.config.SetLogLevel != nil {
		s.config.SetLogLevel(c.LogLevel)
	}
	for _, p := range s.parts {
		if p.reload != nil {
			p.reload(c)
		}
	}
}

// GetFlagz returns the settings in force, for /flagz.
func (r *reloader) GetFlagz() map[string]string {
	flags := map[string]string{}
	for _, s := range *r.settings.Load() {
		flags[s.Name] = s.Value
	}
	return flags
}

// run reloads until ctx ends. One goroutine does it, so reloads never overlap. A signal
// that comes during a reload causes one more, which reads the newest file.
func (r *reloader) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.signals:
		}
		if ctx.Err() == nil {
			r.reload()
		}
	}
}

// reload applies what it can, all of it or, if the new configuration has an error,
// nothing.
func (r *reloader) reload() {
	next, err := r.read()
	if err != nil {
		r.log.Error("the new configuration has an error; keeping the current settings", "error", err)
		return
	}
	settings, applied, waiting := merge(*r.settings.Load(), next.Settings)
	r.apply(next)
	r.settings.Store(&settings)
	for _, s := range applied {
		r.log.Info("a setting has changed", "name", s.Name, "value", s.Value, "source", s.Source)
	}
	for _, s := range waiting {
		r.log.Warn("a changed setting needs a restart", "name", s.Name, "value", s.Value, "new", *s.Pending)
	}
	r.log.Info("the configuration was read again", "applied", len(applied), "waiting", len(waiting))
}

// merge returns the settings in force after a reload: those that were applied, and those
// that wait for a restart, with their new value as Pending.
func merge(old, next []Setting) (settings, applied, waiting []Setting) {
	fresh := map[string]Setting{}
	for _, s := range next {
		fresh[s.Name] = s
	}
	for _, s := range old {
		n := fresh[s.Name]
		switch {
		case n.Raw == s.Raw: // a new line in the file, or a way back before the restart
			s = n
		case reloadable[s.Name]:
			s = n
			applied = append(applied, s)
		default:
			s.Pending = &n.Value
			waiting = append(waiting, s)
		}
		settings = append(settings, s)
	}
	return settings, applied, waiting
}

// ServeHTTP answers with the settings in force.
func (r *reloader) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(*r.settings.Load()) // the client may be gone
}
